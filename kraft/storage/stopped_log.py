"""The metadata log of a controller that does not run, ours or Apache Kafka's: read, compared, copied.

    DIR/__cluster_metadata-0/*.checkpoint, *.log -> StoppedLog -> migration.py

Both write the same files. What Apache Kafka keeps beside them (indexes, epochs, its vote) follows from the
log or belongs to its own Raft.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_quorum.foundation.batch import BatchHeader, check_crc, decode_batch, iter_headers
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.primitives import Reader
from metadata_quorum.metadata.batch_loader import Transaction, load_batch
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.metadata_log import SnapshotId
from metadata_quorum.metadata.snapshot import decode_checkpoint

_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_FRAME_VERSION_BYTES: Final = 1
_OF_THE_LOG: Final = (".log", ".checkpoint")
_OF_KAFKA: Final = (
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    "leader-epoch-checkpoint",
    "quorum-state",
)


class StoredBatch(NamedTuple):
    header: BatchHeader
    data: bytes


@dataclass(frozen=True, slots=True)
class StoppedLog:
    """All of it, in memory: it is as small as the metadata."""

    directory: str
    checkpoint: SnapshotId | None
    """The newest."""
    checkpoint_data: bytes
    batches: tuple[StoredBatch, ...]

    @property
    def end(self) -> tuple[int, int]:
        """The epoch of the last record, and the offset after it: of two logs the greater one is the newer."""
        newest = [(each.epoch, each.end_offset) for each in (self.checkpoint,) if each is not None]
        newest += [
            (each.header.partition_leader_epoch, each.header.next_offset) for each in self.batches[-1:]
        ]
        return max(newest, default=(-1, 0))

    def image(self) -> MetadataImage:
        """Raises `FatalError` where the log cannot be read, or ends within a metadata transaction."""
        image, transaction = EMPTY_IMAGE, None
        try:
            if self.checkpoint is not None:
                image = decode_checkpoint(self.checkpoint_data, *self.checkpoint)
            image, transaction = self._replayed(image)
        except ValueError as error:
            raise _unusable(self.directory, f"cannot be read: {error}") from None
        if transaction is not None:
            raise _unusable(
                self.directory,
                "ends within a metadata transaction: start the controllers it is of once more, and stop them",
            )
        return image

    def _replayed(self, image: MetadataImage) -> tuple[MetadataImage, Transaction]:
        transaction: Transaction = None
        for header, data in self.batches:
            if header.last_offset <= image.offset:
                continue
            if header.base_offset > image.offset + 1:
                raise ValueError(f"offsets from {image.offset + 1} to {header.base_offset} are missing")
            _, image, transaction = load_batch(image, transaction, data, 0, header)
        return image, transaction

    def record_types(self) -> set[int]:
        """Of Kafka's metadata records, by their numbers."""
        stored = [
            (self.checkpoint_data, position, header)
            for position, header in iter_headers(self.checkpoint_data)
        ]
        stored += [(data, 0, header) for header, data in self.batches]
        values = (
            Reader(record.value or b"", _FRAME_VERSION_BYTES)
            for data, position, header in stored
            if not header.is_control
            for record in decode_batch(data, position)
        )
        return {value.uvarint() for value in values}

    def differs_at(self, other: StoppedLog) -> int | None:
        """The first offset at which both have a batch, and not the same one."""
        theirs = {each.header.base_offset: each.data for each in other.batches}
        for header, data in self.batches:
            if theirs.get(header.base_offset, data) != data:
                return header.base_offset
        return None


def read_stopped_log(disk: Disk, directory: str) -> StoppedLog:
    """Up to its first batch that is torn. Raises `FatalError` where there is none."""
    try:
        names = disk.list(directory, NOT_SERVING)
    except FileNotFoundError:
        raise _unusable(directory, "is not there: no controller has run here") from None
    checkpoints = sorted(SnapshotId(int(m[1]), int(m[2])) for m in map(_CHECKPOINT.fullmatch, names) if m)
    newest = checkpoints[-1] if checkpoints else None
    data = b"" if newest is None else disk.read_bytes(f"{directory}/{newest.file_name}", NOT_SERVING)
    batches: list[StoredBatch] = []
    for name in sorted(name for name in names if _SEGMENT.fullmatch(name)):
        stored = disk.read_bytes(f"{directory}/{name}", NOT_SERVING)
        whole = list(_batches(stored, batches[-1].header.next_offset if batches else int(name[:20])))
        batches += whole
        if sum(len(each.data) for each in whole) < len(stored):
            break
    if newest is None and not batches:
        raise _unusable(directory, "is empty: no controller has run here")
    return StoppedLog(directory, newest, data, tuple(batches))


def _batches(stored: bytes, offset: int) -> list[StoredBatch]:
    """The whole ones in order, from that offset on."""
    found: list[StoredBatch] = []
    try:
        for position, header in iter_headers(stored):
            if header.base_offset != offset or not check_crc(stored, position, header):
                break
            found.append(StoredBatch(header, stored[position : position + header.size]))
            offset = header.next_offset
    except ValueError:
        pass  # a length that no batch can have
    return found


def copy_log(disk: Disk, log: StoppedLog, directory: str) -> None:
    """Make the log in `directory` this one; durable on return. Raises `OSError`."""
    for name in disk.list(directory, NOT_SERVING):
        if name.endswith(_OF_THE_LOG):
            disk.remove(f"{directory}/{name}")
    for name in disk.list(log.directory, NOT_SERVING):
        if name.endswith(_OF_THE_LOG):
            data = disk.read_bytes(f"{log.directory}/{name}", NOT_SERVING)
            disk.write_atomic(f"{directory}/{name}", data, NOT_SERVING)


def sync_log(disk: Disk, log: StoppedLog) -> None:
    """Make durable what a controller of ours has only written. Raises `OSError`."""
    for name in disk.list(log.directory, NOT_SERVING):
        if name.endswith(_OF_THE_LOG):
            file = disk.open(f"{log.directory}/{name}")
            try:
                file.sync(NOT_SERVING)
            finally:
                file.close()
    disk.sync_dir(log.directory, NOT_SERVING)


def remove_kafkas_own(disk: Disk, directory: str) -> None:
    """What Apache Kafka keeps beside the log. Raises `OSError`."""
    for name in disk.list(directory, NOT_SERVING):
        if name.endswith(_OF_KAFKA):
            disk.remove(f"{directory}/{name}")


def _unusable(directory: str, why: str) -> FatalError:
    return FatalError(ExitCode.LOG_DIR_UNUSABLE, f"{directory} {why}")
