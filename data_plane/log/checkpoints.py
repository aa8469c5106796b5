"""Kafka's small text files: checkpoints of a log dir, a partition's identity.

A checkpoint is a version line, a count line, then one line per entry:

    0
    2
    flights 0 1234          replication-offset-, recovery-point-offset-, log-start-offset-,
                            cleaner-offset-checkpoint
    flights 1 998
    -----------------
    0
    1
    3 1234                  leader-epoch-checkpoint: epoch, start offset

`partition.metadata` holds `key: value` lines. `write_atomic` of the disk makes each write all or nothing.

Off the path of the data: written every few seconds and on shutdown, read at the start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.uuids import parse_uuid, uuid_text

REPLICATION_OFFSETS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANED_TO: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RUNNING: Final = "running-broker-epoch"
"""Ours; Kafka has nothing like it."""
_NOT_CLEAN: Final = b"not clean"
"""A mark that is on its way out."""
_LOST: Final = "pages-may-be-lost"
"""`RUNNING` under another name, where it could not be emptied."""

_VERSION: Final = "0"
_COUNT: Final = re.compile("[0-9]{1,9}")
_NUMBER: Final = re.compile("-?[0-9]{1,19}")
"""What `int` takes is wider: digits of other scripts, and it fails at very many."""


class CheckpointError(Exception):
    """A checkpoint that cannot be understood; the message names the file and the line."""


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def _decode(path: str, data: bytes, fields: int) -> list[list[str]]:
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return []  # created and never written
    if lines[0] != _VERSION:
        raise CheckpointError(f"{path}: unknown version {lines[0][:20]!r} in line 1")
    if len(lines) < 2 or not _COUNT.fullmatch(lines[1]):
        raise CheckpointError(f"{path}: line 2 is not a count")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != int(lines[1]):
        raise CheckpointError(f"{path}: {lines[1]} entries announced, {len(entries)} found")
    for number, entry in enumerate(entries, start=3):
        if len(entry) != fields or not all(map(_NUMBER.fullmatch, entry[-2:])):
            raise CheckpointError(f"{path}: line {number} is malformed")
    return entries


def _read(disk: Disk, path: str, may_block: MayBlock) -> bytes:
    return disk.read_bytes(path, may_block) if disk.exists(path) else b""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The contents of one of the three offset checkpoints."""
    return _encode(f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))


def read_offsets(disk: Disk, path: str, may_block: MayBlock) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty where there is none. Raises CheckpointError."""
    entries = _decode(path, _read(disk, path, may_block), fields=3)
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in entries}


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """The contents of `leader-epoch-checkpoint`."""
    return _encode(f"{epoch} {start}" for epoch, start in entries)


def read_epochs(disk: Disk, path: str, may_block: MayBlock) -> list[tuple[int, int]]:
    """(epoch, start offset) in file order; empty where there is no file. Raises CheckpointError."""
    data = _read(disk, path, may_block)
    if data and not data.endswith(b"\n"):  # written without a sync: the last number may be cut short
        raise CheckpointError(f"{path}: the last line is torn")
    return [(int(epoch), int(start)) for epoch, start in _decode(path, data, fields=2)]


def write_unsynced(disk: Disk, path: str, data: bytes) -> None:
    """Replace a small file atomically for readers, without waiting for the device.

    For files that recovery can rebuild from the log. The temporary file is not `write_atomic`'s, for a
    flush may be using that in the executor.
    """
    temporary = path + ".unsynced.tmp"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append((data,))
    finally:
        file.close()
    disk.rename(temporary, path)


# --- identities --------------------------------------------------------------------------------


def write_partition_metadata(disk: Disk, path: str, topic_id: UUID, may_block: MayBlock) -> None:
    """`partition.metadata`: which topic a directory belongs to."""
    disk.write_atomic(path, f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode(), may_block)


def begin_partition_metadata(disk: Disk, path: str, topic_id: UUID) -> None:
    """For a new directory, without waiting for the device: the checkpoints may still describe an older one of
    that name. `write_partition_metadata` follows once they do not."""
    write_unsynced(disk, path, f"new: true\nversion: 0\ntopic_id: {uuid_text(topic_id)}".encode())


class PartitionMetadata(NamedTuple):
    """What `partition.metadata` says."""

    topic_id: UUID | None
    """None where there is no file."""
    known_to_checkpoints: bool
    """The checkpoints' entries for the partition describe this directory."""


def read_partition_metadata(disk: Disk, path: str, may_block: MayBlock) -> PartitionMetadata:
    """Raises CheckpointError."""
    fields = dict(_pairs(_read(disk, path, may_block)))
    if not fields:
        return PartitionMetadata(None, known_to_checkpoints=False)
    is_new = "new" in fields
    try:
        return PartitionMetadata(parse_uuid(fields["topic_id"]), not is_new)
    except (KeyError, ValueError) as e:
        if is_new:  # not synced: a power loss has torn it
            return PartitionMetadata(None, known_to_checkpoints=False)
        raise CheckpointError(f"{path}: no readable topic_id") from e


def _pairs(data: bytes) -> Iterable[tuple[str, str]]:
    for line in data.decode("utf-8", "replace").splitlines():
        key, found, value = line.partition(":")
        if found and not line.lstrip().startswith("#"):
            yield key.strip(), value.strip()


# --- clean shutdown ----------------------------------------------------------------------------


class BrokerRun(NamedTuple):
    """A run of the broker, from its registration on."""

    broker_epoch: int
    """-1 if that is not known, or something that was kept may be lost."""
    log_dirs: frozenset[UUID]
    """The ids of all log dirs that the broker had, failed ones too. None where whoever wrote it down does not
    say it: Kafka, or a version of ours before this one."""
    failed: frozenset[UUID] = frozenset()
    """The ids of those that have failed and may lack pages: they could not say so themselves, perhaps."""


UNKNOWN_RUN: Final = BrokerRun(-1, frozenset())


def _encode_run(run: BrokerRun, **more: object) -> bytes:
    fields = {"version": 0, "brokerEpoch": run.broker_epoch, "logDirs": _listed(run.log_dirs), **more}
    if run.failed:
        fields["failedDirs"] = _listed(run.failed)
    return json.dumps(fields, separators=(",", ":")).encode()


def _listed(directories: Iterable[UUID]) -> list[str]:
    return sorted(uuid_text(each) for each in directories)


def _json(data: bytes) -> Any:
    """Raises ValueError, whatever is in it."""
    try:
        return json.loads(data)
    except RecursionError as e:
        raise ValueError("nested beyond all sense") from e


def _decode_run(data: bytes, boot_id: str | None = None) -> BrokerRun:
    """UNKNOWN_RUN where it cannot be understood, or is of another boot than this."""
    try:
        fields = _json(data)
        if boot_id is not None and fields["bootId"] != boot_id:
            return UNKNOWN_RUN
        log_dirs, failed = (
            frozenset(parse_uuid(each) for each in fields.get(name, ())) for name in ("logDirs", "failedDirs")
        )
        epoch = fields["brokerEpoch"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNKNOWN_RUN
    return BrokerRun(epoch, log_dirs, failed) if isinstance(epoch, int) else UNKNOWN_RUN


def write_clean_shutdown(disk: Disk, log_dir: str, run: BrokerRun, may_block: MayBlock) -> None:
    """Note that every log of the dir was closed: the next start need not recover them. What is noted of the
    run outlives the machine beside it: emptied by a loss of power it would say that the disk had failed."""
    running = f"{log_dir}/{RUNNING}"
    if disk.exists(running):
        file = disk.open(running)
        try:
            file.sync(may_block)
        finally:
            file.close()
    disk.write_atomic(f"{log_dir}/{CLEAN_SHUTDOWN}", _encode_run(run), may_block)


def read_clean_shutdown(disk: Disk, log_dir: str, may_block: MayBlock) -> BrokerRun | None:
    """The run that ended with the clean shutdown before this start; None if it was unclean. An empty mark
    is of an older Kafka."""
    path = f"{log_dir}/{CLEAN_SHUTDOWN}"
    data = disk.read_bytes(path, may_block) if disk.exists(path) else _NOT_CLEAN
    return None if data == _NOT_CLEAN else _decode_run(data)


def remove_clean_shutdown(disk: Disk, log_dir: str, may_block: MayBlock) -> None:
    """Once the logs are open, so that a crash from here on is seen as one."""
    disk.remove(f"{log_dir}/{CLEAN_SHUTDOWN}")
    disk.sync_dir(log_dir, may_block)


def lose_clean_shutdown(disk: Disk, log_dir: str, may_block: MayBlock) -> None:
    """A mark that was removed, in a sync that failed, could come back with the next loss of power. It is made
    once more, as one that nothing believes, and removed; gone for certain after a sync."""
    disk.write_atomic(f"{log_dir}/{CLEAN_SHUTDOWN}", _NOT_CLEAN, may_block)
    disk.remove(f"{log_dir}/{CLEAN_SHUTDOWN}")


# --- a process that died -----------------------------------------------------------------------


def write_running(
    disk: Disk, log_dir: str, run: BrokerRun, boot_id: str, *, renewal_due: bool = False
) -> None:
    """Note which run of a broker uses this dir, under which boot of the machine. Not synced: it is of use
    only as long as the page cache that holds it. `renewal_due`: names here may not be durable, and the next
    start is to make them so; a loss of power settles that, too."""
    more = {"renewalDue": True} if renewal_due else {}
    write_unsynced(disk, f"{log_dir}/{RUNNING}", _encode_run(run, bootId=boot_id, **more))
    disk.remove(f"{log_dir}/{_LOST}")


def renewal_due(disk: Disk, log_dir: str, boot_id: str, may_block: MayBlock) -> bool:
    """Whether a run under this boot has said so."""
    path = f"{log_dir}/{RUNNING}"
    if not disk.exists(path):
        return False
    try:
        fields = _json(disk.read_bytes(path, may_block))
        return bool(fields["renewalDue"] and fields["bootId"] == boot_id)
    except (ValueError, KeyError, TypeError):
        return False


def has_running(disk: Disk, log_dir: str) -> bool:
    """Whether anything is noted of the last run, if only that it has failed."""
    return any(disk.exists(f"{log_dir}/{name}") for name in (RUNNING, _LOST))


def mark_lost(disk: Disk, log_dir: str) -> None:
    """The disk has failed: what was not synced may be lost, as after another boot. A file without a byte says
    so, because a full disk has room for nothing else; or its name, where the process can open none."""
    path = f"{log_dir}/{RUNNING}"
    try:
        file = disk.open(path, create=True)
        try:
            file.truncate(0)
        finally:
            file.close()
    except OSError:
        disk.rename(path, f"{log_dir}/{_LOST}")


def disk_failed(disk: Disk, log_dir: str, may_block: MayBlock) -> bool:
    """Whether the last run has said so (`mark_lost`); a loss of power may look the same."""
    path = f"{log_dir}/{RUNNING}"
    return disk.exists(f"{log_dir}/{_LOST}") or (disk.exists(path) and not disk.read_bytes(path, may_block))


def machine_restarted(disk: Disk, log_dir: str, boot_id: str, may_block: MayBlock) -> bool:
    """Whether a process ran here under another boot of the machine, or lost pages under this one
    (`mark_lost`). What it says may itself be torn then; under one boot it never is."""
    path = f"{log_dir}/{RUNNING}"
    if not boot_id or not has_running(disk, log_dir):
        return False
    if disk.exists(f"{log_dir}/{_LOST}"):
        return True
    try:
        return bool(_json(disk.read_bytes(path, may_block))["bootId"] != boot_id)
    except (ValueError, KeyError, TypeError):
        return True


def read_running(disk: Disk, log_dir: str, boot_id: str, may_block: MayBlock) -> BrokerRun:
    """The run of the process that was here last, if the machine has not been booted since."""
    path = f"{log_dir}/{RUNNING}"
    if not boot_id or not disk.exists(path) or disk.exists(f"{log_dir}/{_LOST}"):
        return UNKNOWN_RUN
    return _decode_run(disk.read_bytes(path, may_block), boot_id)
