"""The records of `__cluster_metadata` as lines, from a controller (Fetch) or from its files.

For `kraft metadata dump`; apart from the command because it imports all record types.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kraft.cli.errors import CliError
from kraft.cli.silence import silence_of
from kraft.net.client import UnsupportedVersion
from kraft.peers.blocking_client import metadata_chunks
from kraft.wire.bridge import MalformedMessage
from metadata_quorum.foundation.batch import decode_batch, iter_headers
from metadata_quorum.foundation.uuids import uuid_text
from metadata_quorum.metadata.control_records import decode_control
from metadata_quorum.metadata.records import decode

CHECKPOINT: Final = ".checkpoint"


def from_files(paths: list[Path]) -> Iterator[str]:
    """The lines for segments and checkpoints, or for directories of them. Raises CliError."""
    for path in _expand(paths):
        data = path.read_bytes()
        yield f"Dumping {path}"
        lines = list(_lines(data))
        if data and not lines:
            raise CliError(f"{path} is no segment or checkpoint of the metadata log")
        yield from lines


def from_node(host: str, port: int) -> Iterator[str]:
    """The lines for the snapshot and log of the cluster that this node is in. Raises CliError."""
    try:
        for chunk in metadata_chunks(host, port):
            yield from _lines(chunk)
    except (OSError, UnsupportedVersion, MalformedMessage) as error:
        raise CliError(f"{host}:{port} {silence_of(error)}") from None


def _expand(files: list[Path]) -> Iterator[Path]:
    for path in files:
        if path.is_dir():
            found = sorted(p for p in path.iterdir() if p.suffix in (CHECKPOINT, ".log"))
            if not found:
                raise CliError(f"{path}: no segment or checkpoint in it")
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
        raise CliError(f"what follows is not readable: {error}") from None


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
