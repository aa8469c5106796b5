"""Batches and logs for tests: short ways to write and to read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_plane.log.config import LogConfig
from data_plane.log.load import load
from data_plane.log.log import UnifiedLog
from metadata_quorum.foundation.batch import (
    CONTROL_ABORT,
    Record,
    control_type,
    decode_batch,
    encode_batch,
    iter_headers,
)
from metadata_quorum.foundation.disk import Disk, OsDisk
from tests.support.may_block import MAY_BLOCK

NOW_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp: int = NOW_MS, **fields: Any) -> bytearray:
    """A batch of records with these values, writable as a produce request's is."""
    return bytearray(encode_batch([Record(-1, timestamp, None, value) for value in values], **fields))


def open_log(
    directory: Path, config: LogConfig | None = None, *, disk: Disk | None = None, **arguments: Any
) -> UnifiedLog:
    """A log as after a crash, recovered from its start, unless the arguments say otherwise."""
    defaults: dict[str, Any] = {
        "recovery_point": 0,
        "log_start_offset": 0,
        "clean": False,
        "now_ms": NOW_MS,
        "may_block": MAY_BLOCK,
    }
    return UnifiedLog(
        load(disk or OsDisk(), str(directory), config or LogConfig(), **{**defaults, **arguments})
    )


def lead(log: UnifiedLog, *values: bytes, epoch: int = 0, timestamp: int = NOW_MS, **fields: Any) -> int:
    """Append one batch as a leader; returns its first offset."""
    info = log.append_as_leader(
        batch(*values, timestamp=timestamp, **fields), leader_epoch=epoch, now_ms=NOW_MS
    )
    return info.first_offset


def flush(log: UnifiedLog) -> None:
    work = log.prepare_flush()
    if work is not None:
        work.run(MAY_BLOCK)
        log.flush_done(work)


def truncate(log: UnifiedLog, offset: int) -> bool:
    """As a follower's broker does, which makes it durable; whether there was anything to truncate."""
    if not truncate_unflushed(log, offset):
        return False
    flush(log)
    return True


def truncate_unflushed(log: UnifiedLog, offset: int) -> bool:
    """The first half of it: the log takes no appends yet."""
    work = log.prepare_truncation(offset)
    if work is None:
        return False
    work.run(MAY_BLOCK)
    assert log.truncate_to(work)
    return True


def read_all(log: UnifiedLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from `start` (default: the log's start) on, by reads."""
    offset = log.log_start_offset if start is None else start
    found: list[tuple[int, bytes | None]] = []
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, at_least_one_batch=True).read(MAY_BLOCK)
        batches = list(iter_headers(data))
        assert batches, f"nothing to read at {offset}"
        for position, header in batches:
            found += [(r.offset, r.value) for r in decode_batch(data, position) if r.offset >= offset]
            offset = header.next_offset
    return found


def raw_bytes(log: UnifiedLog) -> bytes:
    """The log's files, one after another."""
    return b"".join(Path(segment.path).read_bytes() for segment in log.segments)


def read_committed(
    log: UnifiedLog, start: int | None = None, *, max_bytes: int = 600
) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of what a read_committed consumer shows from `start` on, fetch by fetch. What is
    aborted it leaves out by the list that comes with a fetch, as the clients do, from a transaction's first
    offset to its marker."""
    offset = log.log_start_offset if start is None else start
    unstable = log.first_unstable_offset(log.log_end_offset)
    stable = log.log_end_offset if unstable is None else unstable
    shown: list[tuple[int, bytes | None, bytes | None]] = []
    while offset < stable:
        piece = log.read(offset, max_bytes, upper_offset=stable, at_least_one_batch=True)
        aborted = sorted(log.aborted_in(piece), key=lambda entry: entry[1])
        data = piece.read(MAY_BLOCK)
        aborting: set[int] = set()
        batches = list(iter_headers(data))
        assert batches, f"nothing to read at {offset} below {stable}"
        for position, header in batches:
            while aborted and aborted[0][1] <= header.last_offset:
                aborting.add(aborted.pop(0)[0])
            records = decode_batch(data, position)
            if header.is_control:
                if records and control_type(records[0]) == CONTROL_ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                shown += [(r.offset, r.key, r.value) for r in records if r.offset >= offset]
            offset = header.next_offset
    return shown
