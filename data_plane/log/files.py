"""Names of the files in a partition's directory, as Apache Kafka names them.

A segment's files share a stem of twenty digits, the offset of its first record:
`00000000000000000042.log`, `.index`, `.timeindex`, `.snapshot` (producers' state before it),
`.txnindex`. A file that awaits its removal has `.deleted` appended; one that compaction is writing
`.cleaned`, and `.swap` from when it is whole until it has taken the place of the old ones.
"""

from __future__ import annotations

import re
from typing import Final

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
SNAPSHOT: Final = ".snapshot"
TXN_INDEX: Final = ".txnindex"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, SNAPSHOT, TXN_INDEX)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

_STEM_DIGITS: Final = 20
_STEM: Final = re.compile(f"[0-9]{{{_STEM_DIGITS}}}")


def path_of(directory: str, base_offset: int, suffix: str) -> str:
    """The path of one of a segment's files."""
    return f"{directory}/{base_offset:0{_STEM_DIGITS}d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name, or None where it is not a file of that kind."""
    if not name.endswith(suffix) or not _STEM.fullmatch(name.removesuffix(suffix)):
        return None
    offset = int(name.removesuffix(suffix))
    return offset if offset < 1 << 63 else None


def offsets_in(disk: Disk, directory: str, suffix: str, may_block: MayBlock) -> list[int]:
    """The offsets of a directory's files of one kind, ascending."""
    offsets = (offset_of(name, suffix) for name in disk.list(directory, may_block))
    return sorted(offset for offset in offsets if offset is not None)
