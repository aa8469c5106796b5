"""What compaction keeps: the newest record of every key, and what others still need to see.

    a record                               is removed
    ---------------------------------------------------------------------------------------------
    with an older value of its key         the key's newer record lies below the cleaned end
    without a key                          at once (a compacted topic takes none; its policy changed)
    tombstone (null value)                 `delete.retention.ms` after the first pass that saw it:
                                           that pass writes the delete horizon into the batch (KIP-534)
    of an aborted transaction              at once
    a transaction's marker                 as a tombstone, when no record of its transaction is left
    the newest data batch and the newest   never while the producer is live, or an older batch of it
    marker of a producer                   stays: a start that reads the log must not find an older
                                           state than there was. Of the data the empty batch will do

Offsets never change: a batch keeps its base and its last offset, a batch without records is removed,
and readers skip the gaps.

Pure: bytes and numbers in, bytes out. Path of the data: cleaner.py -> here, batch by batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from data_plane.log.aborted import AbortedTransaction
from metadata_quorum.foundation.batch import (
    CONTROL_ABORT,
    BatchHeader,
    Record,
    control_type,
    decode_batch,
    encode_batch,
)
from metadata_quorum.foundation.primitives import Buffer


class BatchRetention(Enum):
    """A batch's part in transactions."""

    KEEP = "keep"
    ABORTED = "aborted"
    MARKER_NEEDED = "marker needed"
    MARKER_SPENT = "marker spent"


class CleanedTransactionMetadata:
    """Follows the batches of a pass in order of offsets: which belong to aborted transactions, and which
    markers are no longer needed, since no record of their transaction is left."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda t: t.first_offset, reverse=True)
        self._aborting: dict[int, bool] = {}  # producer -> whether a batch of it was seen
        self._committing: set[int] = set()

    def retention_of(self, header: BatchHeader, marker: Record | None) -> BatchRetention:
        """`marker`: the record of a control batch."""
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._aborting.setdefault(self._waiting.pop().producer_id, False)
        producer = header.producer_id
        if marker is not None:
            if control_type(marker) == CONTROL_ABORT:
                met = self._aborting.pop(producer, False)
            else:
                met = producer in self._committing
                self._committing.discard(producer)
            return BatchRetention.MARKER_NEEDED if met else BatchRetention.MARKER_SPENT
        if not header.is_transactional:
            return BatchRetention.KEEP
        if producer in self._aborting:
            self._aborting[producer] = True
            return BatchRetention.ABORTED
        self._committing.add(producer)
        return BatchRetention.KEEP


class Newest(NamedTuple):
    """A producer's epoch, and the last offsets of the batches that its state follows from (-1: none)."""

    epoch: int
    data: int
    marker: int


def note_newest(newest: dict[int, Newest], header: BatchHeader) -> None:
    """Take in the next batch, as ProducerStateManager does."""
    if header.producer_id < 0:
        return
    known = newest.get(header.producer_id) or Newest(header.producer_epoch, -1, -1)
    if header.producer_epoch > known.epoch:
        known = Newest(header.producer_epoch, -1, known.marker)
    if not header.is_control and header.producer_epoch == known.epoch:
        known = known._replace(data=header.last_offset)
    elif header.is_control and header.record_count:
        known = known._replace(marker=header.last_offset)
    newest[header.producer_id] = known


@dataclass(frozen=True, slots=True)
class CompactionPass:
    """One pass over a log; times in ms since the epoch."""

    latest: Mapping[bytes, int]
    """Key -> offset of its newest record below `end`."""
    end: int
    """Batches that reach it or lie behind it stay as they are."""
    now_ms: int
    delete_retention_ms: int
    live: Collection[int]
    """Producers in the log's state."""
    newest: Mapping[int, Newest]
    """Of all producers, below `end`."""
    transactions: CleanedTransactionMetadata
    needed_markers: set[int] = field(default_factory=set)
    """Offsets of markers whose transaction still has records."""
    removed: set[int] = field(default_factory=set)
    """Last offsets of batches that the state of producers followed from."""
    _staying: set[int] = field(default_factory=set)
    """Producers of which a batch stays."""

    def clean(self, data: Buffer, header: BatchHeader) -> Buffer | None:
        """What becomes of one whole batch: itself, a smaller one, or None."""
        if header.last_offset >= self.end:
            return data
        cleaned = self._cleaned(data, header)
        if header.producer_id >= 0 and cleaned is not None:
            self._staying.add(header.producer_id)
        return cleaned

    def _cleaned(self, data: Buffer, header: BatchHeader) -> Buffer | None:
        records = decode_batch(data)
        needed = self._is_newest(header) and (
            header.producer_id in self.live or header.producer_id in self._staying
        )
        marker = records[0] if header.is_control and records else None
        outcome = self.transactions.retention_of(header, marker)
        if outcome is BatchRetention.MARKER_NEEDED:
            self.needed_markers.add(header.last_offset)
        horizon = header.base_timestamp if header.has_delete_horizon else None
        due = horizon is not None and horizon <= self.now_ms
        match outcome:
            case BatchRetention.KEEP:
                kept = [record for record in records if self._is_retained(record, due)]
                expires = any(record.value is None for record in kept)
            case BatchRetention.ABORTED:
                kept, expires = [], False
            case BatchRetention.MARKER_NEEDED:
                kept, expires = records, False
            case BatchRetention.MARKER_SPENT:
                kept, expires = [] if due and not needed else records, True
        if not kept and not needed and (self._is_newest(header) or (header.is_control and records)):
            self.removed.add(header.last_offset)
        if expires and horizon is None:
            horizon = self.now_ms + self.delete_retention_ms
        elif len(kept) == len(records) > 0:
            return data
        if not kept and not needed:
            return None
        return _rewritten(header, kept, horizon if kept else None)

    def is_needed(self, entry: AbortedTransaction) -> bool:
        """Whether readers still need the entry: its marker is still needed, or not reached by this pass."""
        return entry.last_offset in self.needed_markers or entry.last_offset >= self.end

    def _is_retained(self, record: Record, horizon_due: bool) -> bool:
        if record.key is None or record.offset < self.latest.get(record.key, -1):
            return False
        return record.value is not None or not horizon_due

    def _is_newest(self, header: BatchHeader) -> bool:
        newest = self.newest.get(header.producer_id)
        if newest is None:
            return False
        return header.last_offset == (newest.marker if header.is_control else newest.data)


def newest_records(
    transactions: CleanedTransactionMetadata, data: Buffer, header: BatchHeader, first_dirty: int
) -> list[Record]:
    """The records of a batch from `first_dirty` on that may be the newest of their keys."""
    marker = decode_batch(data)[0] if header.is_control and header.record_count else None
    outcome = transactions.retention_of(header, marker)
    if header.is_control or outcome is BatchRetention.ABORTED or header.next_offset <= first_dirty:
        return []
    return decode_batch(data)


def _rewritten(header: BatchHeader, records: list[Record], horizon: int | None) -> bytes:
    """An emptied batch keeps its newest timestamp: after a restart that is its producer's age."""
    return encode_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.partition_leader_epoch,
        compression=header.compression if records else 0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time_ms=header.max_timestamp if header.timestamp_type else None,
        delete_horizon_ms=horizon,
        max_timestamp_ms=header.max_timestamp,
    )
