"""A log without records that is still as it was made: most of a large cluster's are.

Opening one takes a look at its directory and no more, where any other may need recovery (load.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from data_plane.log import files
from data_plane.log.producer_snapshot import encode_snapshot

_MADE: Final = tuple(
    files.path_of("", 0, suffix)[1:] for suffix in (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX)
)
_SNAPSHOT: Final = files.path_of("", 0, files.SNAPSHOT)[1:]
_SNAPSHOT_BYTES: Final = len(encode_snapshot({}))
_OTHERS: Final = frozenset({*_MADE, _SNAPSHOT, files.PARTITION_METADATA, files.LEADER_EPOCHS})


def is_as_made(sizes: Mapping[str, int]) -> bool:
    """Whether the files, by their lengths, are those of a log that never had a record, or has lost all to a
    truncation. A clean close adds a snapshot of no producers; epochs are of no use without records."""
    return (
        all(sizes.get(name) == 0 for name in _MADE)
        and sizes.get(_SNAPSHOT, _SNAPSHOT_BYTES) == _SNAPSHOT_BYTES
        and sizes.keys() <= _OTHERS
    )
