"""The files of dropped segments, to be removed later.

Path of the data: log.take_deletions -> here -> replica_manager's executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk


@dataclass(frozen=True, slots=True)
class Deletion:
    """Remove files that were renamed to `*.deleted`, once the delay is over (`file.delete.delay.ms`, or 0).

    It lets reads finish that hold a slice of them. It is no time of day: a clock that is set would have the
    files stay until that comes.
    """

    disk: Disk
    paths: Sequence[str]
    delay_ms: int
    size: int

    def run(self, may_block: MayBlock) -> None:
        for path in self.paths:
            self.disk.remove(path)
