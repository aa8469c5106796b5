"""What is in a log, batch by batch as it is written: read from the page cache, past the process.

    the bytes since the last look -> one after the other, in the epochs that the log says they have
                                  -> the same wherever a batch of that offset and epoch is
    a higher high watermark       -> the same epochs below it on every replica

Where both are the same replicas agree below the high watermark. Compacted logs are compared in the end only
(replicas.py): batches lose records there, and who lacks an epoch's first does not know where it began.
"""

from __future__ import annotations

from typing import NamedTuple

from chaos.simulator.cluster import Cluster
from chaos.simulator.oracles.quorum import Report
from data_plane.log.log import UnifiedLog
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.batch import iter_headers
from metadata_quorum.foundation.invariants import Invariant

PartitionId = tuple[int, int]
"""Topic id, partition."""


class _Read(NamedTuple):
    """How far a process's log has been read."""

    path: str
    """Of the segment."""
    position: int
    next_offset: int
    epoch: int
    """Of the last batch. A leader that wrote nothing has begun a newer one, and forgets it as a follower."""


class _Chain(NamedTuple):
    """Epochs below the highest high watermark."""

    start: int
    end: int
    entries: list[tuple[int, int]]
    """(epoch, start offset)"""


class BatchOracle:
    """See the module."""

    def __init__(self, cluster: Cluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._read: dict[UnifiedLog, _Read] = {}
        """Each process has its own."""
        self._checksums: dict[PartitionId, dict[tuple[int, int], int]] = {}
        """By offset and leader epoch."""
        self._chains: dict[PartitionId, _Chain] = {}

    def look_at(self, broker: int, replica: Partition) -> None:
        """Its offsets have changed, or its epochs."""
        log, name = replica.log, f"{replica.tp} on {broker}"
        if not log.config.compact:
            self._look_at_epochs(name, replica)
        active, read = log.log_segments.active, self._read.get(log)
        disk = self._cluster.machines[broker].disk
        if read is not None and read.path != active.path:
            rolled = next((each for each in log.segments if each.path == read.path), None)
            if rolled is None:
                read = None  # truncated, or moved to another directory
            else:
                read = self._take(name, replica, read, disk.cached(read.path, read.position, rolled.size))
                read = read._replace(path=active.path, position=0)
        if read is not None and read.position < active.size:
            read = self._take(name, replica, read, disk.cached(active.path, read.position, active.size))
            if read.next_offset != log.log_end_offset:
                what = f"{name} ends at {log.log_end_offset}, its batches at {read.next_offset}"
                self._report(Invariant.OFFSETS_IN_ORDER.name, what)
        end = log.log_end_offset
        self._read[log] = _Read(active.path, active.size, end, log.epochs.epoch_at(end - 1))

    def _take(self, name: str, replica: Partition, read: _Read, written: bytes) -> _Read:
        """Batches that were appended."""
        checksums = self._checksums.setdefault(_id_of(replica), {})
        next_offset, latest = read.next_offset, read.epoch
        for _, header in iter_headers(written):
            epoch = header.partition_leader_epoch
            if header.base_offset < next_offset:
                what = f"{name}: a batch at {header.base_offset} follows one that ends before {next_offset}"
                self._report(Invariant.OFFSETS_IN_ORDER.name, what)
            said = replica.log.epochs.epoch_at(header.base_offset)
            if epoch < latest or (said != epoch and header.next_offset > replica.log.log_start_offset):
                what = f"{name}: epoch {epoch} at {header.base_offset} after {latest}, the log says {said}"
                self._report(Invariant.BATCH_EPOCHS_MONOTONIC.name, what)
            if not replica.log.config.compact:
                known = checksums.setdefault((header.base_offset, epoch), header.crc)
                if known != header.crc:
                    what = (
                        f"{name}: another batch than a replica had at {header.base_offset} of epoch {epoch}"
                    )
                    self._report(Invariant.REPLICAS_AGREE.name, what)
            next_offset, latest = header.next_offset, epoch
        return read._replace(next_offset=next_offset, epoch=latest)

    def _look_at_epochs(self, name: str, replica: Partition) -> None:
        partition_id, high_watermark = _id_of(replica), replica.high_watermark
        start, entries = replica.log.log_start_offset, list(replica.log.epochs.entries)
        known = self._chains.get(partition_id)
        if known is not None and known.entries != entries:
            low, high = max(start, known.start), min(high_watermark, known.end)
            mine, theirs = (
                [each for each in some if low < each[1] < high] for some in (entries, known.entries)
            )
            if mine != theirs:
                what = f"{name} has epochs {mine} between {low} and {high}, another replica had {theirs}"
                self._report(Invariant.REPLICAS_AGREE.name, what)
        if known is None or high_watermark > known.end:
            self._chains[partition_id] = _Chain(start, high_watermark, entries)


def _id_of(replica: Partition) -> PartitionId:
    return replica.topic_id.int, replica.tp.partition
