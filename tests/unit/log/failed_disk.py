"""A log directory before its disk fails, and when it has: what a run leaves there, and what it owes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from uuid import UUID

from chaos.sim.disk import SimDisk
from data_plane.log.checkpoints import RUNNING, BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.model import TopicPartition
from tests.support.logs import NOW_MS, flush, lead, read_all, read_committed
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.compacted_log import COMPACT, clean, contents, put
from tests.unit.log.transactional_log import end_transaction, send

PLAIN, COMPACTED, LATE = (TopicPartition(name, 0) for name in ("plain", "compacted", "late"))
CONFIG: Final = LogConfig(segment_bytes=400, index_interval_bytes=100)
COMPACTING: Final = {COMPACTED.topic: COMPACT}
RUN: Final = BrokerRun(7, frozenset([UUID(int=1)]))
Logs = dict[TopicPartition, UnifiedLog]
Owed = dict[TopicPartition, dict[int, bytes | None]]
"""By offset, what was flushed. Of the compacted log, what must be left of it."""


def log_dir(disk: SimDisk, boot_id: str) -> LogDir:
    return LogDir(disk, "/data", UUID(int=1), boot_id=boot_id)


def opened(disk: SimDisk, boot_id: str) -> tuple[LogDir, Logs]:
    """A start, which finds no log that is corrupt."""
    directory = log_dir(disk, boot_id)
    found, offline = directory.load(CONFIG, COMPACTING, NOW_MS, MAY_BLOCK)
    assert not offline
    return directory, {tp: log for tp, (log, _) in found.items()}


def created(directory: LogDir, *tps: TopicPartition) -> Iterator[UnifiedLog]:
    logs = [
        directory.open_log(tp, UUID(int=9), COMPACTING.get(tp.topic, CONFIG), NOW_MS, MAY_BLOCK) for tp in tps
    ]
    directory.disk.sync_dir(directory.path, MAY_BLOCK)
    for log in logs:
        log.identify(MAY_BLOCK)
        yield log


def flushed(log: UnifiedLog, tp: TopicPartition, owed: Owed) -> None:
    flush(log)
    owed[tp] = dict(read_all(log))


def run(disk: SimDisk, owed: Owed) -> None:
    """Rolls, an abort, a compaction, a new log; all of it flushed by the end."""
    directory, _ = opened(disk, "a boot")
    directory.mark_running(RUN)
    disk.open(f"/data/{RUNNING}").sync(MAY_BLOCK)  # as the operating system does some time
    plain, compacted = created(directory, PLAIN, COMPACTED)
    for i in range(8):
        put(compacted, (b"key-%d" % (i % 3), b"%d" % i * 60))
    flush(compacted)
    owed[COMPACTED] = {offset: value for offset, _, value in contents(compacted) if offset >= 5}
    for i in range(4):
        lead(plain, b"%d" % i * 100)
        flushed(plain, PLAIN, owed)
    send(plain, 5, 0, b"aborted")
    end_transaction(plain, 5, commit=False)
    flushed(plain, PLAIN, owed)
    plain.roll(NOW_MS)
    flushed(plain, PLAIN, owed)
    logs = {PLAIN: plain, COMPACTED: compacted}
    checkpoint(directory, logs)
    compacted.config = replace(COMPACT, segment_bytes=4000)  # one takes the place of many
    clean(compacted)
    flush(compacted)
    (logs[LATE],) = created(directory, LATE)
    lead(logs[LATE], b"first")
    flushed(logs[LATE], LATE, owed)
    checkpoint(directory, logs)


def checkpoint(directory: LogDir, logs: Logs) -> None:
    ends = {tp: log.log_end_offset for tp, log in logs.items()}
    directory.checkpoint(MAY_BLOCK, ends, {tp: log.recovery_point for tp, log in logs.items()}, {}, {})


def check(logs: Logs, owed: Owed) -> None:
    for tp, records in owed.items():
        assert records.items() <= dict(read_all(logs[tp])).items(), tp
    for log in logs.values():
        assert all(value != b"aborted" for _, _, value in read_committed(log))


def failed() -> tuple[SimDisk, Owed]:
    """A disk that has failed, with all logs on it."""
    disk, owed = SimDisk(), Owed()
    disk.make_dirs("/data")
    run(disk, owed)
    log_dir(disk, "a boot").mark_lost()
    disk.kill()
    return disk, owed
