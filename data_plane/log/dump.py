"""What lies in the files of a log, printed as Apache Kafka's `kafka-dump-log` prints it, and checked.

`dump` yields the lines for a file by its name: batches (and records) of a `.log` or `.checkpoint`,
entries of an index, producers of a `.snapshot`, epochs of `leader-epoch-checkpoint`. `verify` says in
sentences what is wrong with a file; an index is held against the `.log` beside it.

Off the path of the data: `kraft log dump` and tests; works on a copy or under a running broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise

from data_plane.log import checkpoints, files
from data_plane.log.aborted import decode as decode_aborted
from data_plane.log.index import OffsetIndex, TimeIndex, check_order
from data_plane.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from data_plane.log.segment import headers_in
from metadata_quorum.foundation.batch import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    CorruptBatchError,
    Record,
    check_crc,
    control_type,
    coordinator_epoch,
    decode_batch,
)
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.compression import CompressionType
from metadata_quorum.foundation.disk import Disk, File

CHECKPOINT = ".checkpoint"  # a snapshot of the metadata log: batches like a .log

Decoder = Callable[[Record], str]
"""What to print of a record behind its metadata, e.g. ` key: k payload: v`."""


def dump(
    disk: Disk, path: str, *, print_records: bool = False, decoder: Decoder | None = None
) -> Iterator[str]:
    """The lines for one file. Raises ValueError for a file that is none of a log's."""
    yield f"Dumping {path}"
    name = os.path.basename(path)
    if name.endswith((files.LOG, CHECKPOINT)):
        yield from _dump_log(disk, path, print_records or decoder is not None, decoder or plain)
    elif name.endswith(files.OFFSET_INDEX):
        index = _offset_index(disk, path)
        for offset_entry in index.entries():
            yield f"offset: {index.base_offset + offset_entry.offset} position: {offset_entry.position}"
    elif name.endswith(files.TIME_INDEX):
        times = _time_index(disk, path)
        for entry in times.entries():
            yield f"timestamp: {entry.timestamp} offset: {times.base_offset + entry.offset}"
    elif name.endswith(files.SNAPSHOT):
        yield from _dump_snapshot(disk.read_bytes(path, NOT_SERVING))
    elif name.endswith(files.TXN_INDEX):
        for transaction in decode_aborted(disk.read_bytes(path, NOT_SERVING)):
            yield (
                f"version: 0 producerId: {transaction.producer_id} firstOffset: {transaction.first_offset} "
                f"lastOffset: {transaction.last_offset} lastStableOffset: {transaction.last_stable_offset}"
            )
    elif name == files.LEADER_EPOCHS:
        for epoch, start in checkpoints.read_epochs(disk, path, NOT_SERVING):
            yield f"epoch: {epoch} startOffset: {start}"
    else:
        raise ValueError(f"{path} is not a file of a log")


def plain(record: Record) -> str:
    """Key and value as text."""
    key = "" if record.key is None else f" key: {record.key.decode('utf-8', 'replace')}"
    value = "" if record.value is None else f" payload: {record.value.decode('utf-8', 'replace')}"
    return key + value


def verify(disk: Disk, path: str) -> list[str]:
    """What is wrong with a file, one sentence each; empty where it is sound."""
    name = os.path.basename(path)
    try:
        if name.endswith((files.LOG, CHECKPOINT)):
            return list(_verify_log(disk, path))
        if name.endswith(files.OFFSET_INDEX):
            return list(_verify_offset_index(disk, path))
        if name.endswith(files.TIME_INDEX):
            return list(_verify_time_index(disk, path))
        if name.endswith(files.SNAPSHOT):
            decode_snapshot(disk.read_bytes(path, NOT_SERVING))
        elif name == files.LEADER_EPOCHS:
            entries = checkpoints.read_epochs(disk, path, NOT_SERVING)
            return [
                f"{path}: epoch {after} does not come after {before}"
                for before, after in pairwise(entries)
                if after[0] <= before[0] or after[1] < before[1]
            ]
        else:
            return [f"{path} is not a file of a log"]
    except (CorruptSnapshotError, CorruptBatchError, checkpoints.CheckpointError) as e:
        return [f"{path}: {e}"]
    return []


# --- batches -----------------------------------------------------------------------------------


def _base_offset(path: str) -> int:
    """From the name; a metadata snapshot's ends with its epoch, `<offset>-<epoch>.checkpoint`."""
    stem = os.path.basename(path).split(".")[0].split("-")[0]
    return int(stem) if stem.isdigit() else 0


def _batches(file: File, path: str) -> Iterator[tuple[int, BatchHeader]]:
    """Whole batches only."""
    for position, header in headers_in(file.read, 0, file.size(), path):
        if position + header.size > file.size():
            return
        yield position, header


def _dump_log(disk: Disk, path: str, print_records: bool, decoder: Decoder) -> Iterator[str]:
    if path.endswith(files.LOG):
        yield f"Log starting offset: {_base_offset(path)}"
    else:
        epoch = os.path.basename(path).split(".")[0].rpartition("-")[2]
        yield f"Snapshot end offset: {_base_offset(path)}, epoch: {int(epoch)}"
    file = disk.open(path)
    end = 0
    try:
        for position, header in _batches(file, path):
            batch = file.read(position, header.size)
            valid = check_crc(batch, 0, header)
            yield _batch_line(position, header, valid)
            end = position + header.size
            if print_records and valid:
                for record in decode_batch(batch):
                    yield _record_line(record, header, decoder)
    except CorruptBatchError as e:
        yield str(e)
    if end < file.size():
        yield f"Found {file.size() - end} invalid bytes at the end of {os.path.basename(path)}"
    file.close()


def _batch_line(position: int, header: BatchHeader, valid: bool) -> str:
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"
    codec = header.compression
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_flag(header.is_transactional)} isControl: {_flag(header.is_control)} "
        f"deleteHorizonMs: {horizon} position: {position} "
        f"{_timestamp_name(header)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {CompressionType(codec).name.lower() if codec <= CompressionType.ZSTD else codec} "
        f"crc: {header.crc} isvalid: {_flag(valid)}"
    )


def _record_line(record: Record, header: BatchHeader, decoder: Decoder) -> str:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = (sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    keys = ",".join(key.encode(errors="replace").decode() for key, _ in record.headers)
    content = _control(record) if header.is_control else decoder(record)
    return (
        f"| offset: {record.offset} {_timestamp_name(header)}: {record.timestamp} keySize: {key_size} "
        f"valueSize: {value_size} sequence: {sequence} headerKeys: [{keys}]{content}"
    )


def _control(record: Record) -> str:
    kind = control_type(record)
    if kind in (CONTROL_ABORT, CONTROL_COMMIT):
        outcome = "COMMIT" if kind == CONTROL_COMMIT else "ABORT"
        return f" endTxnMarker: {outcome} coordinatorEpoch: {coordinator_epoch(record)}"
    return f" controlType: {kind}"


def _timestamp_name(header: BatchHeader) -> str:
    if header.timestamp_type:
        return "LogAppendTime"
    return "CreateTime"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _verify_log(disk: Disk, path: str) -> Iterator[str]:
    file = disk.open(path)
    expected = _base_offset(path) if path.endswith(files.LOG) else 0
    end = 0
    for position, header in _batches(file, path):
        if header.base_offset < expected:
            yield f"{path}: offset {header.base_offset} at byte {position}, expected at least {expected}"
        batch = file.read(position, header.size)
        if not check_crc(batch, 0, header):
            yield f"{path}: the CRC of the batch at byte {position} (offset {header.base_offset}) is wrong"
        else:
            try:
                decode_batch(batch)
            except CorruptBatchError as e:
                yield f"{path}: {e}"
        expected = header.next_offset
        end = position + header.size
    if end < file.size():
        yield f"{path}: {file.size() - end} invalid bytes at the end"
    file.close()


# --- indexes and snapshots ---------------------------------------------------------------------


def _offset_index(disk: Disk, path: str) -> OffsetIndex:
    return OffsetIndex(disk, path, _base_offset(path), disk.open(path).size())


def _time_index(disk: Disk, path: str) -> TimeIndex:
    return TimeIndex(disk, path, _base_offset(path), disk.open(path).size())


def _log_beside(disk: Disk, path: str) -> dict[int, tuple[int, BatchHeader]]:
    """Batches of the segment by last offset, with their positions."""
    log_path = path.rpartition(".")[0] + files.LOG
    if not disk.exists(log_path):
        raise CorruptBatchError(f"there is no {os.path.basename(log_path)} to hold it against")
    file = disk.open(log_path)
    return {header.last_offset: (position, header) for position, header in _batches(file, log_path)}


def _verify_offset_index(disk: Disk, path: str) -> Iterator[str]:
    index = _offset_index(disk, path)
    entries = index.entries()
    while entries and entries[-1].position == 0 and entries[-1].offset == 0:
        entries.pop()  # places that Kafka keeps zeroed at the end of an index in use
    yield from (f"{path}: {wrong}" for wrong in check_order(entries))
    batches = _log_beside(disk, path)
    for entry in entries:
        offset = index.base_offset + entry.offset
        found = batches.get(offset)
        if found is None or found[0] != entry.position:
            yield f"{path}: no batch that ends with offset {offset} begins at byte {entry.position}"


def _verify_time_index(disk: Disk, path: str) -> Iterator[str]:
    index = _time_index(disk, path)
    entries = index.entries()
    while entries and entries[-1].timestamp == 0 and entries[-1].offset == 0:
        entries.pop()
    yield from (f"{path}: {wrong}" for wrong in check_order(entries))
    batches = _log_beside(disk, path)
    for entry in entries:
        offset = index.base_offset + entry.offset
        found = batches.get(offset)
        if found is None or found[1].max_timestamp != entry.timestamp:
            yield f"{path}: no batch that ends with offset {offset} has the timestamp {entry.timestamp}"


def _dump_snapshot(data: bytes) -> Iterator[str]:
    try:
        states = decode_snapshot(data)
    except CorruptSnapshotError as e:
        yield str(e)
        return
    for producer_id, state in states.items():
        first_offset = state.current_txn_first_offset
        transaction = "OptionalLong.empty" if first_offset is None else f"OptionalLong[{first_offset}]"
        line = (
            f"producerId: {producer_id} producerEpoch: {state.epoch} "
            f"coordinatorEpoch: {state.coordinator_epoch} currentTxnFirstOffset: {transaction} "
            f"lastTimestamp: {state.last_timestamp} "
        )
        if state.batches:
            last = state.batches[-1]
            line += (
                f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
                f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} timestamp: {last.timestamp}"
            )
        yield line
