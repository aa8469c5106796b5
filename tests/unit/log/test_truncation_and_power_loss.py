"""A follower's log is truncated, or restarts, and is written again, over and over, and the process or the
machine dies in between: what comes back is the beginning of what the log was before a truncation or after it,
never some of both, and all that was durable.

Records are of one size, so that a page or a segment of before would fit among those of after; epochs do not
tell them apart either.
"""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from chaos.sim.disk import Killed, SimDisk
from data_plane.log import checkpoints
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.truncation import TruncationWork
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import TopicPartition
from tests.support.logs import batch, flush, open_log, read_all, truncate_unflushed
from tests.support.may_block import MAY_BLOCK

PATH: Final = "/d/t-0"
CHECKPOINT: Final = f"/d/{checkpoints.RECOVERY_POINTS}"
LOG_STARTS: Final = f"/d/{checkpoints.LOG_START_OFFSETS}"
TP: Final = TopicPartition("t", 0)
CONFIG: Final = LogConfig(segment_bytes=9_000, index_interval_bytes=1_000)
BATCH_BYTES: Final = 1024  # a quarter of a page
VALUE_BYTES: Final = 2 * BATCH_BYTES - len(batch(bytes(BATCH_BYTES)))
DEATHS: Final = 5

Version = tuple[int, list[bytes]]
"""Where the log begins, and its records."""

pytestmark = pytest.mark.row("L7")


class Replica:
    """The log through several lives, and what it must show."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk()
        self.disk.make_dirs("/d")
        self.written = 0
        self.versions: list[Version] = [(0, [])]  # since the last start: the last one is what it holds
        self.durable = 0  # so many records of the last version
        self.log: UnifiedLog | None = None
        self.machine_restarted = False

    def start(self) -> None:
        """As log_dirs.py does. Dies where the disk does."""
        points = checkpoints.read_offsets(self.disk, CHECKPOINT, MAY_BLOCK)
        starts = checkpoints.read_offsets(self.disk, LOG_STARTS, MAY_BLOCK)
        log = open_log(
            PATH,
            CONFIG,
            disk=self.disk,
            recovery_point=points.get(TP, 0),
            log_start_offset=starts.get(TP, 0),
            machine_restarted=self.machine_restarted,
        )
        self.check(log.log_start_offset, [value or b"" for _, value in read_all(log)])
        self.log = log
        self.machine_restarted = False  # noted when the log has been opened
        self.checkpoint()
        self.disk.sync_dir(PATH, MAY_BLOCK)  # as the identification of a new log does

    def check(self, start: int, found: list[bytes]) -> None:
        """Of a log that was restarting the oldest segments may be gone."""
        fits = [v for at, v in self.versions if at <= start and v[start - at :][: len(found)] == found]
        known = [(at, names(v)) for at, v in self.versions]
        assert fits, f"{names(found)} from {start} on is of none of {known}"
        assert len(found) >= self.durable, f"{len(found)} of {self.durable} durable records"
        assert not self.durable or start == self.versions[-1][0]
        self.versions = [(start, found)]

    def live(self) -> None:
        log, random = self.log, self.random
        assert log is not None
        while True:
            match random.randrange(10):
                case 0:
                    self.truncate(random.randint(log.log_start_offset, log.log_end_offset))
                case 1:
                    self.restart(log.log_end_offset + random.randrange(1, 50))
                case 2 | 3:
                    self.flush()
                case 4:
                    self.checkpoint()
                case _:
                    self.append()

    def append(self) -> None:
        assert self.log is not None
        self.written += 1
        value = b"%d-" % self.written
        value = value.ljust(VALUE_BYTES, b".")
        self.versions[-1][1].append(value)
        run = batch(value, base_offset=self.log.log_end_offset, leader_epoch=1)
        self.log.append_as_follower(run)

    def flush(self) -> None:
        assert self.log is not None
        work = self.log.prepare_flush()
        if work is not None:
            work.run(MAY_BLOCK)
            self.log.flush_done(work)
        self.durable = len(self.versions[-1][1])
        del self.versions[:-1]

    def checkpoint(self) -> None:
        assert self.log is not None
        for path, offset in ((CHECKPOINT, self.log.recovery_point), (LOG_STARTS, self.log.log_start_offset)):
            self.disk.write_atomic(path, checkpoints.encode_offsets({TP: offset}), MAY_BLOCK)

    def truncate(self, offset: int) -> None:
        assert self.log is not None
        start, values = self.versions[-1]
        self.durable = min(self.durable, offset - start)
        work = self.log.prepare_truncation(offset)
        if work is not None:
            self.carry_out(work, (start, values[: offset - start]))

    def restart(self, offset: int) -> None:
        """The leader's log begins there."""
        assert self.log is not None
        self.durable = 0
        work = self.log.prepare_truncation(offset, restart=True)
        assert work is not None
        self.carry_out(work, (offset, []))

    def carry_out(self, work: TruncationWork, version: Version) -> None:
        assert self.log is not None
        work.run(MAY_BLOCK)
        self.checkpoint()
        self.versions.append(version)
        assert self.log.truncate_to(work)
        for deletion in self.log.take_deletions():
            deletion.run(MAY_BLOCK)
        self.flush()

    def die(self, *, names_in_order: bool) -> None:
        """The process alone, or the machine with it."""
        if self.random.random() < 0.6:
            self.machine_restarted = True
            self.disk.power_loss(self.random, names_in_order=names_in_order)
        else:
            self.disk.kill()


def names(values: list[bytes]) -> list[str]:
    return [value.partition(b"-")[0].decode() for value in values]


def live_and_die(seed: int, *, names_in_order: bool) -> None:
    replica = Replica(seed)
    for _ in range(DEATHS):
        replica.disk.kill_before(replica.random.randrange(1, 60))
        try:
            replica.start()
            replica.live()
        except Killed:
            pass
        replica.die(names_in_order=names_in_order)
    replica.start()


def test_a_log_takes_no_appends_until_its_truncation_is_durable() -> None:
    disk = SimDisk()
    log = open_log(PATH, CONFIG, disk=disk)
    for number in range(20):
        log.append_as_follower(batch(b"x" * VALUE_BYTES, base_offset=number, leader_epoch=1))

    def refused() -> None:
        for append in (
            lambda: log.append_as_follower(batch(b"y", base_offset=log.log_end_offset, leader_epoch=2)),
            lambda: log.append_as_leader(batch(b"y"), leader_epoch=2, now_ms=0),
        ):
            with pytest.raises(BrokerError, match="not durable"):
                append()
        assert not log.inconsistent

    for offset in (5, 3):
        begun = log.prepare_flush()
        assert begun is not None
        begun.run(MAY_BLOCK)
        assert truncate_unflushed(log, offset)
        log.flush_done(begun)  # it does not know of the truncation
        refused()
        failed = log.prepare_flush()
        assert failed is not None
        log.flush_failed(failed)
        refused()
    flush(log)
    assert log.append_as_follower(batch(b"y", base_offset=3, leader_epoch=2)) is not None


@pytest.mark.parametrize("names_in_order", [True, False])
def test_what_is_truncated_and_written_again_is_never_mixed(names_in_order: bool) -> None:
    for seed in range(100):
        live_and_die(seed, names_in_order=names_in_order)


@pytest.mark.long
@pytest.mark.parametrize("names_in_order", [True, False])
def test_what_is_truncated_and_written_again_is_never_mixed_in_very_many_histories(
    names_in_order: bool,
) -> None:
    for seed in range(100, 5_000):
        live_and_die(seed, names_in_order=names_in_order)


def test_only_its_own_truncation_is_discarded() -> None:
    log = open_log(PATH, CONFIG, disk=SimDisk())
    for number in range(4):
        log.append_as_follower(batch(b"x", base_offset=number))
    first, second = log.prepare_truncation(3), log.prepare_truncation(2)
    assert first is not None
    assert second is not None
    second.run(MAY_BLOCK)
    log.discard_truncation(first)
    assert log.truncate_to(second)


@pytest.mark.parametrize("names_in_order", [True, False])
def test_a_log_that_restarts_opens_after_a_loss_of_power(names_in_order: bool) -> None:
    """Of its old segments, which were durable, any may come back beside the new one."""
    for seed in range(100):
        replica = Replica(seed)
        replica.start()
        for _ in range(40):
            replica.append()
        replica.flush()
        replica.checkpoint()
        replica.disk.kill_before(replica.random.randrange(60))
        try:
            replica.restart(100)
            for _ in range(20):
                replica.append()
        except Killed:
            pass
        replica.machine_restarted = True
        replica.disk.power_loss(replica.random, names_in_order=names_in_order)
        replica.start()
