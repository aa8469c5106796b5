"""Kafka's varints in bulk, and the one walk that cannot be done in bulk: from record to record.

A record begins with its length, so where the next one begins is known only when this one's length has been
read. `record_ends` follows that chain; after it, every field of all records is read by numpy at once.

Zigzag-coded, seven bits a byte, least significant first (metadata_quorum/batch.py has the layout).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from metadata_quorum.batch import CorruptBatchError

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_LONGEST_SHIFT: Final = 63
"""Of the tenth and last byte."""


class Run(NamedTuple):
    """The records of one batch: `rows` of them fill the bytes from `begin` to `end` of a buffer."""

    begin: int
    end: int
    rows: int


def read_varints(data: Bytes, at: Positions) -> tuple[Positions, Positions]:
    """The varint at each position, and the position after each.

    Raises IndexError beyond the end of `data`.
    """
    first = data[at]
    raw = first.astype(np.uint64)
    at = at + 1
    longer = np.flatnonzero(first >= 0x80)
    if len(longer):
        raw &= np.uint64(0x7F)
        which: Any = slice(None) if len(longer) == len(at) else longer  # all of them: no index needed
        for shift in range(7, _LONGEST_SHIFT + 1, 7):
            byte = data[at[which]]
            raw[which] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[which] += 1
            longer = longer[byte >= 0x80]
            if not len(longer):
                break
            which = longer
        else:
            raise CorruptBatchError("varint of more than ten bytes")
    return ((raw >> np.uint64(1)) ^ -(raw & np.uint64(1))).view(np.int64), at


def record_ends(buffer: memoryview, runs: list[Run]) -> Positions:
    """Where each record ends, for all records of all runs.

    Every run ends where it should, or CorruptBatchError is raised; what a length between says is for the
    caller to check.
    """
    total = sum(run.rows for run in runs)
    try:
        return np.fromiter(_walk(buffer, runs), np.int64, total)
    except (IndexError, ValueError, OverflowError) as error:
        raise CorruptBatchError(f"the records' lengths contradict the batch: {error}") from None


def _walk(buffer: memoryview, runs: list[Run]) -> Iterator[int]:
    for run in runs:
        at = run.begin
        for _ in range(run.rows):
            byte = buffer[at]
            if byte < 0x80:
                at += 1 + (byte >> 1)
            else:
                second = buffer[at + 1]
                if second < 0x80:
                    at += 2 + ((byte & 0x7F | second << 7) >> 1)
                else:
                    at = _after_long(buffer, at, byte & 0x7F | (second & 0x7F) << 7)
            yield at
        if at != run.end:
            raise CorruptBatchError(f"{run.rows} records end {at - run.end} bytes off the batch's end")


def _after_long(buffer: memoryview, at: int, raw: int) -> int:
    """The end of a record whose length takes three bytes or more."""
    begin, shift = at, 14
    at += 2
    while True:
        byte = buffer[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _LONGEST_SHIFT:
            raise CorruptBatchError("varint of more than ten bytes")
    if raw & 1:
        raise CorruptBatchError(f"record of a negative length at byte {begin}")
    return at + (raw >> 1)
