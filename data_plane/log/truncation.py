"""The part of a log's truncation that may block, and must come before it.

A checkpoint on disk may say that everything below some offset is durable. Once the log is truncated below
that and written again, that is wrong: the next start would trust bytes that were never synced. So:

    log.prepare_truncation  the recovery point falls to the beginning of the segment that will be truncated,
                            to 0 where the log restarts (its leader's begins beyond its end), and does not
                            rise until the truncation is applied or discarded
    TruncationWork.run      in an executor: where the log will end, and the state of its producers there
    the log's owner         makes a checkpoint durable that was started after `prepare_truncation`
    log.truncate_to         truncates. Refused if the log has changed in between
    a flush                 makes the truncation durable; until then the log refuses appends, of a leader or
                            a follower: nothing is written in the place of what was dropped

So no checkpoint on disk ever covers more than is durable, wherever a crash comes, and no page or segment from
before the truncation reappears among later ones.

Path of the data: partition.truncate_to -> log -> here, in the executor -> log.
"""

from __future__ import annotations

from sortedcontainers import SortedDict

from data_plane.log.producer_recovery import rebuild_producers
from data_plane.log.producers import ProducerStateManager
from data_plane.log.segment import LogSegment
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk


class TruncationWork:
    """See the module."""

    def __init__(
        self, disk: Disk, directory: str, offset: int, segments: SortedDict[int, LogSegment]
    ) -> None:
        """`segments` are those that begin at `offset` or before."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self.ready = False
        self.position = 0  # in the last of `segments`, where it ends then
        self.end = offset  # of the log; lower than requested where that lies inside a batch
        self.producers = ProducerStateManager()
        self.stale_snapshots: list[str] = []

    @property
    def base_offset(self) -> int:
        """Base offset of the segment that is truncated, or with which the log restarts."""
        base: int = self._segments.peekitem(-1)[0] if self._segments else self.end
        return base

    @property
    def restarts_empty(self) -> bool:
        """Nothing is left of the log."""
        return not self._segments

    def run(self, may_block: MayBlock) -> None:
        """Raises CorruptBatchError, and OSError of the disk."""
        try:
            if self._segments:
                self._find_end()
                self.stale_snapshots = rebuild_producers(
                    self._disk,
                    self._directory,
                    self.producers,
                    self._segments,
                    self.end,
                    may_block,
                )
        except FileNotFoundError:  # retention has deleted a segment meanwhile: to be prepared again
            return
        self.ready = True

    def _find_end(self) -> None:
        last: LogSegment = self._segments.peekitem(-1)[1]
        read = last.file.read
        self.position = last.find(self.end, read)
        dropped = next(last.headers(self.position, last.size, read), None)
        if dropped is not None:
            self.end = min(self.end, dropped[1].base_offset)
