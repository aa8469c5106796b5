"""Batches and logs for tests: short ways to write and to read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_plane.log.config import LogConfig
from data_plane.log.log import Log
from metadata_quorum.batch import Record, decode_batch, encode_batch, iter_headers
from metadata_quorum.disk import Disk, OsDisk

NOW_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp: int = NOW_MS, **fields: Any) -> bytearray:
    """A batch of records with these values, writable as a produce request's is."""
    return bytearray(encode_batch([Record(-1, timestamp, None, value) for value in values], **fields))


def open_log(
    directory: Path, config: LogConfig | None = None, *, disk: Disk | None = None, **arguments: Any
) -> Log:
    """A log as after a crash, recovered from its start, unless the arguments say otherwise."""
    defaults: dict[str, Any] = {"recovery_point": 0, "log_start_offset": 0, "clean": False, "now_ms": NOW_MS}
    return Log.open(disk or OsDisk(), str(directory), config or LogConfig(), **{**defaults, **arguments})


def lead(log: Log, *values: bytes, epoch: int = 0, timestamp: int = NOW_MS, **fields: Any) -> int:
    """Append one batch as a leader; returns its first offset."""
    info = log.append_as_leader(
        batch(*values, timestamp=timestamp, **fields), leader_epoch=epoch, now_ms=NOW_MS
    )
    return info.first_offset


def read_all(log: Log, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from `start` (default: the log's start) on, by reads."""
    offset = log.log_start_offset if start is None else start
    found: list[tuple[int, bytes | None]] = []
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, at_least_one_batch=True).read()
        batches = list(iter_headers(data))
        assert batches, f"nothing to read at {offset}"
        for position, header in batches:
            found += [(r.offset, r.value) for r in decode_batch(data, position) if r.offset >= offset]
            offset = header.next_offset
    return found


def raw_bytes(log: Log) -> bytes:
    """The log's files, one after another."""
    return b"".join(Path(segment.path).read_bytes() for segment in log.segments)
