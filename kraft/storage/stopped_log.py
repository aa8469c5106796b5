"""The metadata log of a controller that does not run, ours or Apache Kafka's: read, compared, copied.

    DIR/__cluster_metadata-0/*.checkpoint, *.log -> StoppedLog -> migration.py

Both write the same files. What Apache Kafka keeps beside them (indexes, epochs, its vote) follows from the
log or belongs to its own Raft.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_quorum.foundation.batch import BatchHeader, check_crc, decode_batch, iter_headers
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import Disk, make_dirs_durably
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.primitives import Reader
from metadata_quorum.metadata.batch_loader import Transaction, load_batch
from metadata_quorum.metadata.control_records import LeaderChangeMessage, VotersRecord, decode_control
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.metadata_log import SnapshotId
from metadata_quorum.metadata.snapshot import decode_checkpoint

_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_FRAME_VERSION_BYTES: Final = 1
_OF_THE_LOG: Final = (".log", ".checkpoint")
_OF_KAFKA: Final = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")


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
    read_to: int | None
    """If a batch is damaged and others come after it: the offset at which the last of them begins."""

    @property
    def empty(self) -> bool:
        return self.checkpoint is None and not self.batches

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
        """The types of Kafka's metadata records in it, by their numbers."""
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

    def voters(self) -> frozenset[int]:
        """Those that the log named last; empty where it names none. Raises `FatalError` where that cannot be
        read."""
        stored = [(data, 0, header) for header, data in reversed(self.batches)]
        stored += reversed(
            [(self.checkpoint_data, position, each) for position, each in iter_headers(self.checkpoint_data)]
        )
        for data, position, header in stored:
            for record in reversed(decode_batch(data, position)) if header.is_control else ():
                try:
                    control = decode_control(record.key or b"", record.value or b"")
                except ValueError as error:
                    raise _unusable(self.directory, f"does not tell its voters: {error}") from None
                if isinstance(control, LeaderChangeMessage | VotersRecord):
                    return frozenset(voter.voter_id for voter in control.voters)
        return frozenset()

    def differs_at(self, other: StoppedLog) -> int | None:
        """The first offset at which both have a batch, and not the same one."""
        theirs = {each.header.base_offset: each.data for each in other.batches}
        for header, data in self.batches:
            if theirs.get(header.base_offset, data) != data:
                return header.base_offset
        return None


def read_stopped_log(disk: Disk, directory: str) -> StoppedLog:
    """The log up to its first torn batch; empty if there is no log. Raises `OSError`."""
    names = disk.list(directory, NOT_SERVING)
    checkpoints = sorted(SnapshotId(int(m[1]), int(m[2])) for m in map(_CHECKPOINT.fullmatch, names) if m)
    newest = checkpoints[-1] if checkpoints else None
    data = b"" if newest is None else disk.read_bytes(f"{directory}/{newest.file_name}", NOT_SERVING)
    batches: list[StoredBatch] = []
    read_to: int | None = None
    for base, name in sorted((int(m[1]), name) for name in names if (m := _SEGMENT.fullmatch(name))):
        stored = disk.read_bytes(f"{directory}/{name}", NOT_SERVING)
        for batch in _whole_batches(stored):
            offset = batch.header.base_offset
            if read_to is None and offset == (batches[-1].header.next_offset if batches else base):
                batches.append(batch)
            else:
                read_to = offset
    return StoppedLog(directory, newest, data, tuple(batches), read_to)


def _whole_batches(stored: bytes) -> Iterator[StoredBatch]:
    """All whole batches, also behind a damaged one, as far as the lengths tell where they begin."""
    try:
        for position, header in iter_headers(stored):
            if check_crc(stored, position, header):
                yield StoredBatch(header, stored[position : position + header.size])
    except ValueError:
        return  # a length that no batch can have


def copy_log(disk: Disk, log: StoppedLog, directory: str) -> None:
    """Make the log in `directory` this one; durable on return. Raises `OSError`.

    Whoever reads it after a kill at any point finds the beginning of this log, or one that is older: files
    are replaced from the first offset on, and what is not in this log is removed at the end."""
    make_dirs_durably(disk, directory, NOT_SERVING)
    names = [name for name in disk.list(log.directory, NOT_SERVING) if name.endswith(_OF_THE_LOG)]
    for name in sorted(names, key=_checkpoints_last):
        data = disk.read_bytes(f"{log.directory}/{name}", NOT_SERVING)
        disk.write_atomic(f"{directory}/{name}", data, NOT_SERVING)
    for name in disk.list(directory, NOT_SERVING):
        if name.endswith(_OF_THE_LOG) and name not in names:
            disk.remove(f"{directory}/{name}")
    disk.sync_dir(directory, NOT_SERVING)


def _checkpoints_last(name: str) -> tuple[bool, str]:
    return name.endswith(".checkpoint"), name


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
    """What Apache Kafka keeps beside the log, but for its vote. Raises `OSError`."""
    for name in disk.list(directory, NOT_SERVING):
        if name.endswith(_OF_KAFKA):
            disk.remove(f"{directory}/{name}")


def _unusable(directory: str, why: str) -> FatalError:
    return FatalError(ExitCode.LOG_DIR_UNUSABLE, f"{directory} {why}")
