"""Following `__cluster_metadata` from outside the quorum: a broker without the controller role.

    active controller's log -> Fetch (kraft/peers) -> append() here -> local copy, image, subscribers

Only committed batches are ever served, so nothing is truncated here; a gap or a wrong CRC is the
connection's fault and raises `ValueError` before anything is taken in. The local copy starts empty
at every start, and is bounded by checkpoints of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metadata_quorum.batch import check_crc, decode_batch, iter_headers
from metadata_quorum.flexible import Buffer
from metadata_quorum.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from metadata_quorum.metadata_log import MetadataLog, SnapshotId
from metadata_quorum.records import decode
from metadata_quorum.snapshot import decode_checkpoint, encode_checkpoint

Listener = Callable[[MetadataDelta, MetadataImage], None]

CHECKPOINT_INTERVAL_BYTES: Final = 20 << 20


class MetadataFollower:
    """An image kept up to date from fetched batches."""

    def __init__(self, metadata_log: MetadataLog) -> None:
        self.log = metadata_log
        self.image = EMPTY_IMAGE
        self._listeners: list[Listener] = []
        self._bytes_since_checkpoint = 0
        metadata_log.rewind(0, -1)

    @property
    def fetch_offset(self) -> int:
        """Where the next fetch begins."""
        return self.log.end_offset

    def subscribe(self, listener: Listener) -> None:
        """`listener` hears of every change from now on, in order."""
        self._listeners.append(listener)

    def append(self, records: Buffer) -> None:
        """Take in a run of whole batches; a cut one at the end is left for the next fetch."""
        view = memoryview(records)
        batches = list(iter_headers(view))
        expected = self.fetch_offset
        for pos, header in batches:
            if header.base_offset != expected or not check_crc(view, pos, header):
                raise ValueError(
                    f"metadata batch at offset {header.base_offset}: expected {expected}, or damaged"
                )
            expected = header.next_offset
        for pos, header in batches:
            delta = MetadataDelta(self.image)
            if not header.is_control:
                for record in decode_batch(view, pos):
                    delta.replay(decode(record.value or b""))
            delta.offset = header.next_offset - 1
            delta.epoch = header.partition_leader_epoch
            delta.timestamp_ms = header.max_timestamp
            self.log.append(view[pos : pos + header.size])
            self._bytes_since_checkpoint += header.size
            self._adopt(delta, delta.apply())
        if self._bytes_since_checkpoint > CHECKPOINT_INTERVAL_BYTES:
            self._bytes_since_checkpoint = 0
            self.log.write_checkpoint(self._snapshot_id(), encode_checkpoint(self.image))

    def install(self, snapshot_id: SnapshotId, data: Buffer) -> None:
        """Replace everything by a checkpoint, fetched because the log no longer reaches back to us."""
        image = decode_checkpoint(data, snapshot_id.end_offset, snapshot_id.epoch)
        self.log.rewind(snapshot_id.end_offset, snapshot_id.epoch)
        self.log.write_checkpoint(snapshot_id, data)
        self._bytes_since_checkpoint = 0
        self._adopt(MetadataDelta.between(self.image, image), image)

    def _snapshot_id(self) -> SnapshotId:
        return SnapshotId(self.image.offset + 1, max(self.image.epoch, 0))

    def _adopt(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        for listener in self._listeners:
            listener(delta, image)
