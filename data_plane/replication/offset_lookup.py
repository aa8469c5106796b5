"""ListOffsets and OffsetForLeaderEpoch for one partition. An offset by time is searched for off the loop.

    api/offsets -> list_offset -> TimestampAndOffset, or OffsetSearch.run (executor) -> answer (loop)

A consumer sees offsets up to the high watermark or the last stable offset, a follower up to the log's end.
"""

from __future__ import annotations

from typing import NoReturn

from data_plane.log.timestamps import TimeSearch, TimestampAndOffset
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.batch import CorruptBatchError
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import is_gone
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, detached
from metadata_quorum.foundation.offset_timestamps import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)


class OffsetSearch:
    """One search by time: `run` in the executor, then `answer` on the loop."""

    __slots__ = (
        "_committed_only", "_found", "_leader_epoch", "_log_path", "_partition", "_replica", "_search",
    )  # fmt: skip

    def __init__(
        self, partition: Partition, search: TimeSearch, *, replica: bool, committed_only: bool
    ) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._log_path = partition.log.directory
        self._search = search
        self._replica = replica
        self._committed_only = committed_only
        self._found: TimestampAndOffset | Exception | None = None

    def run(self, may_block: MayBlock) -> None:
        try:
            self._found = self._search.run(may_block)
        except Exception as error:  # noqa: BLE001 - `answer` decides what it means
            self._found = error

    def answer(self) -> TimestampAndOffset:
        """What was found, as far as the client may see it now. Raises BrokerError: NOT_LEADER_OR_FOLLOWER,
        OFFSET_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR."""
        found, partition = self._found, self._partition
        # It may have been truncated during the search.
        if partition.leader_epoch != self._leader_epoch or partition.removed:
            partition.refuse_as_not_leader()
        if isinstance(found, Exception):
            try:
                self._refuse(found)
            finally:
                detached(found)
        if found is not None and found.offset < _visible_end(partition, self._replica, self._committed_only):
            return found
        if not _end_is_known(partition, self._replica):
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return TimestampAndOffset()

    def _refuse(self, error: Exception) -> NoReturn:
        partition = self._partition
        if isinstance(error, OSError) and is_gone(error):  # truncated or deleted during the search
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition.tp} has changed meanwhile")
        if isinstance(error, OSError):
            partition.storage_failed(error, self._log_path)
        if isinstance(error, CorruptBatchError):
            partition.refuse_as_corrupt(error)
        if isinstance(error, BrokerError):
            raise BrokerError(error.code, error.message)
        partition.fault(f"the search by time in {partition.tp}", error)
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{partition.tp}: {error}") from error


def list_offset(
    partition: Partition, timestamp: int, *, replica: bool, committed_only: bool
) -> TimestampAndOffset | OffsetSearch:
    """The offset for `timestamp` in milliseconds, or for one of the constants above. `replica`: a follower
    asks. Raises BrokerError: OFFSET_NOT_AVAILABLE."""
    log = partition.log
    if timestamp == LATEST_TIMESTAMP:
        if not _end_is_known(partition, replica):
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return TimestampAndOffset(
            _visible_end(partition, replica, committed_only), -1, partition.leader_epoch
        )
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        start = log.log_start_offset
        return TimestampAndOffset(start, -1, log.epochs.epoch_at(start))
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return TimestampAndOffset()
    search = log.search_time(None if timestamp == MAX_TIMESTAMP else timestamp)
    return OffsetSearch(partition, search, replica=replica, committed_only=committed_only)


def offset_for_leader_epoch(partition: Partition, epoch: int) -> tuple[int, int]:
    """The largest epoch not above `epoch`, and where it ends; (-1, -1) where there is none."""
    if epoch == partition.leader_epoch and partition.is_leader:
        return epoch, partition.log.log_end_offset
    return partition.log.offset_for_epoch(epoch)


def _visible_end(partition: Partition, replica: bool, committed_only: bool) -> int:
    return partition.read_limit(for_follower=replica, committed_only=committed_only)


def _end_is_known(partition: Partition, replica: bool) -> bool:
    """Until the high watermark has reached this epoch it may lie below what was exposed before."""
    leader = partition.leader
    return replica or leader is None or partition.high_watermark >= leader.epoch_start_offset
