"""A compacted log on a disk: its configuration, what is put there and read back, a cleaning of it."""

from __future__ import annotations

from data_plane.log.cleaner import CleanWork
from data_plane.log.compact_log import cleanable, finish_replacing, plan_cleaning, replace_segments
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.validation import AppendOrigin
from metadata_quorum.foundation.batch import Record, decode_batch, encode_batch, iter_headers
from tests.support.logs import NOW_MS
from tests.support.may_block import MAY_BLOCK

DAY_MS = 86_400_000
COMPACT = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=400,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)


def put(
    log: UnifiedLog,
    *pairs: tuple[bytes | None, bytes | None],
    origin: AppendOrigin = AppendOrigin.CLIENT,
    **fields,
) -> int:
    records = [Record(-1, NOW_MS, key, value) for key, value in pairs]
    data = bytearray(encode_batch(records, **fields))
    return log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS, origin=origin).first_offset


def contents(log: UnifiedLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every data record, by reads as a follower does them."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, at_least_one_batch=True).read(MAY_BLOCK)
        headers = list(iter_headers(data))
        if not headers:
            break
        for position, header in headers:
            assert header.base_offset >= offset or header.last_offset >= offset
            if not header.is_control:
                found += [(r.offset, r.key, r.value) for r in decode_batch(data, position)]
            offset = header.next_offset
    return found


def clean(log: UnifiedLog, *, now_ms: int = NOW_MS, **arguments) -> CleanWork:
    """As the cleaner does it, without waiting for anything."""
    work = plan_cleaning(log, cleanable(log, log.log_end_offset, now_ms), now_ms, **arguments)
    work.run(MAY_BLOCK)
    assert replace_segments(log, work)
    log.disk.sync_dir(log.directory, MAY_BLOCK)
    finish_replacing(log, work)
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)
    return work
