"""Many varlongs at a time, by numpy: a loop over them in Python takes longer than all the rest of decoding.

The bytes of `read_varlong` in metadata_quorum/foundation/primitives.py; a property test compares with them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from metadata_quorum.foundation.batch import CorruptBatchError
from metadata_quorum.foundation.primitives import MAX_VARLONG_BYTES

Positions = npt.NDArray[np.int64]
"""Also lengths, offsets and whatever else is counted."""
Bytes = npt.NDArray[np.uint8]

_LAST_SHIFT: Final = 7 * (MAX_VARLONG_BYTES - 1)
"""The shift of the last byte."""


def read_varints(data: Bytes, at: Positions) -> tuple[Positions, Positions]:
    """The varint at each position, and the position after each.

    Raises IndexError beyond the end of `data`, CorruptBatchError for more than ten bytes.
    """
    values, after, endless = read_if_varints(data, at)
    if len(endless):
        raise CorruptBatchError("varint of more than ten bytes")
    return values, after


def read_if_varints(data: Bytes, at: Positions) -> tuple[Positions, Positions, Positions]:
    """The same of positions where there may be none; and which of them are none."""
    first = data[at]
    raw = first.astype(np.uint64)
    at = at + 1
    longer = np.flatnonzero(first >= 0x80)
    if len(longer):
        raw &= np.uint64(0x7F)
        which: Any = slice(None) if len(longer) == len(at) else longer  # all of them: no index needed
        for shift in range(7, _LAST_SHIFT + 1, 7):
            byte = data[at[which]]
            raw[which] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[which] += 1
            longer = longer[byte >= 0x80]
            if not len(longer):
                break
            which = longer
    return ((raw >> np.uint64(1)) ^ -(raw & np.uint64(1))).view(np.int64), at, longer
