"""The records of `__cluster_metadata` as lines, from a node (Fetch) or from its files.

For `kraft metadata dump`; apart from the command because it imports all record types.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kraft.cli.trouble import Trouble, refuse
from kraft.cluster_state import ask
from kraft.storage import uuid_text
from metadata_quorum.batch import decode_batch, iter_headers
from metadata_quorum.errors import ErrorCode
from metadata_quorum.model import METADATA_TOPIC_ID
from metadata_quorum.records import decode, decode_control

FETCH: Final = 1
FETCH_BYTES: Final = 4 * 1024 * 1024
CHECKPOINT: Final = ".checkpoint"


def from_files(paths: list[Path]) -> Iterator[str]:
    """The lines for segments and checkpoints, or for directories of them."""
    for path in _expand(paths):
        yield f"Dumping {path}"
        yield from _lines(path.read_bytes())


def from_node(host: str, port: int) -> Iterator[str]:
    """The lines for what a node serves of its metadata log."""
    for chunk in _fetch(host, port):
        yield from _lines(chunk)


def _expand(files: list[Path]) -> Iterator[Path]:
    for path in files:
        if path.is_dir():
            found = sorted(p for p in path.iterdir() if p.suffix in (CHECKPOINT, ".log"))
            if not found:
                raise Trouble(f"{path}: no segment or checkpoint in it")
            yield from found
        else:
            yield path


def _lines(data: bytes) -> Iterator[str]:
    try:
        for position, header in iter_headers(data):
            for record in decode_batch(data, position):
                start = f"offset: {record.offset} epoch: {header.partition_leader_epoch}"
                if header.is_control:
                    control = decode_control(record.key or b"", record.value or b"")
                    yield f"{start} control: {_shown(control)}"
                else:
                    yield f"{start} {_shown(decode(record.value or b''))}"
    except ValueError as error:
        raise Trouble(f"what follows is not readable: {error}") from None


def _shown(record: Any) -> str:
    if record is None:
        return "unknown"
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return f"{type(record).__name__} {json.dumps(fields, default=_plain)}"


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return uuid_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return str(value)


def _fetch(host: str, port: int) -> Iterator[bytes]:
    """Chunks of the log from its start up to the high watermark."""
    offset = 0
    while True:
        partition = _fetch_partition(host, port, offset)
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and partition.log_start_offset > offset:
            offset = partition.log_start_offset  # what lies before is in a snapshot
            continue
        if partition.error_code:
            refuse(partition.error_code, None, "metadata")
        records = bytes(partition.records or b"")
        headers = list(iter_headers(records))
        if not headers:
            return
        position, last = headers[-1]
        yield records[: position + last.size]
        offset = last.next_offset
        if offset >= partition.high_watermark:
            return


def _fetch_partition(host: str, port: int, offset: int) -> Any:
    wanted = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": FETCH_BYTES,
        "log_start_offset": -1,
    }
    fields = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": FETCH_BYTES,
        "session_id": 0, "session_epoch": -1,
        "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [wanted]}],
    }  # fmt: skip
    try:
        answer = ask(host, port, FETCH, (13, 17), fields)
    except OSError:
        raise Trouble(f"{host}:{port}: no broker answers") from None
    if answer.error_code:
        refuse(answer.error_code, None, "metadata")
    return answer.responses[0].partitions[0]
