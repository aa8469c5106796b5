"""A log directory dies at any of its disk operations, by a kill or by a loss of power, from its first start
over partitions that are created, written and deleted to a clean shutdown and the next start; and again
while the next start recovers.

What was flushed is there; what was only written is there as long as the machine stays up; and a start that
claims that nothing of the last run is lost tells the truth, because the controller elects by it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest

from data_plane.log.checkpoints import BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.model import TopicPartition
from tests.support.logs import NOW_MS, flush, lead, read_all
from tests.support.may_block import MAY_BLOCK
from tests.support.mortal_disk import DEAD, MortalDisk, crash_points

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=0)
KEPT, DELETED = TopicPartition("kept", 0), TopicPartition("deleted", 0)
TOPIC_ID = UUID(int=9)

pytestmark = pytest.mark.row("L7")


@dataclass
class Ledger:
    """What the directory owes, and what it may still have."""

    flushed: dict[TopicPartition, int] = field(default_factory=dict)
    written: dict[TopicPartition, int] = field(default_factory=dict)
    """With what was being written when it died."""
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    """Written to the end, flushed or not."""
    unnamed: set[TopicPartition] = field(default_factory=set)
    """Created, and their names not durable yet; or deleted, and that is not."""


class Life:
    """One process on the directory."""

    def __init__(self, disk: MortalDisk, ledger: Ledger, boot_id: str) -> None:
        self.disk, self.ledger = disk, ledger
        self.directory = LogDir(disk, "/data", UUID(int=1), boot_id=boot_id)
        self.logs: dict[TopicPartition, UnifiedLog] = {}

    def start(self, *, epoch: int, power: bool) -> None:
        found, offline = self.directory.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
        self.logs = {tp: log for tp, (log, _) in found.items()}
        ledger = self.ledger
        for tp, flushed in ledger.flushed.items():
            if tp in ledger.unnamed and tp not in self.logs:
                continue
            if tp in offline:  # good batches stand behind what was lost: it stays offline, and says so
                assert power
                continue
            end = self.logs[tp].log_end_offset
            least = flushed if power else ledger.acknowledged[tp]
            assert least <= end <= ledger.written[tp], (tp, least, end, ledger)
            assert read_all(self.logs[tp]) == [(offset, value(offset)) for offset in range(end)]
        if self.directory.last_run.broker_epoch >= 0:
            for tp, acknowledged in ledger.acknowledged.items():
                if tp in self.logs:
                    assert self.logs[tp].log_end_offset >= acknowledged, "a lie about what is lost"
                else:
                    assert tp in ledger.unnamed, "a lie about what is lost"
        for tp, log in self.logs.items():
            ledger.acknowledged[tp] = ledger.written[tp] = log.log_end_offset
        self.directory.mark_running(run_of(epoch))

    def create(self, tp: TopicPartition) -> None:
        self.ledger.unnamed.add(tp)
        for offsets in (self.ledger.flushed, self.ledger.written, self.ledger.acknowledged):
            offsets[tp] = 0
        log = self.logs[tp] = self.directory.open_log(tp, TOPIC_ID, CONFIG, NOW_MS, MAY_BLOCK)
        self.disk.sync_dir("/data", MAY_BLOCK)
        log.identify(MAY_BLOCK)
        self.ledger.unnamed.discard(tp)

    def append(self, tp: TopicPartition, records: int) -> None:
        for _ in range(records):
            offset = self.logs[tp].log_end_offset
            self.ledger.written[tp] = offset + 1
            lead(self.logs[tp], value(offset))
            self.ledger.acknowledged[tp] = offset + 1

    def flush(self, tp: TopicPartition) -> None:
        flush(self.logs[tp])
        self.ledger.flushed[tp] = self.logs[tp].log_end_offset

    def checkpoint(self) -> None:
        ends = {tp: log.log_end_offset for tp, log in self.logs.items()}
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        self.directory.checkpoint(MAY_BLOCK, ends, points, dict.fromkeys(self.logs, 0))

    def delete(self, tp: TopicPartition) -> None:
        self.ledger.unnamed.add(tp)
        path = self.directory.set_aside(tp, self.logs.pop(tp), UUID(int=3), "delete")
        self.disk.sync_dir("/data", MAY_BLOCK)
        for offsets in (self.ledger.flushed, self.ledger.written, self.ledger.acknowledged):
            offsets.pop(tp)
        self.disk.remove_tree(path, MAY_BLOCK)

    def stop(self, epoch: int) -> None:
        for tp, log in self.logs.items():
            log.close_clean(MAY_BLOCK)
            self.ledger.flushed[tp] = log.log_end_offset
        self.checkpoint()
        self.directory.mark_clean(run_of(epoch), MAY_BLOCK)


def run_of(epoch: int) -> BrokerRun:
    return BrokerRun(epoch, frozenset([UUID(int=1)]))


def value(offset: int) -> bytes:
    return b"%d" % offset * 40


def two_lives(disk: MortalDisk, ledger: Ledger) -> None:
    first = Life(disk, ledger, "first boot")
    first.start(epoch=1, power=False)
    for tp in (DELETED, KEPT):
        first.create(tp)
        first.append(tp, 3)
    first.flush(DELETED)
    first.checkpoint()
    first.append(KEPT, 2)
    first.delete(DELETED)
    first.flush(KEPT)
    first.append(KEPT, 3)
    first.checkpoint()
    first.stop(1)
    second = Life(disk, ledger, "first boot")
    second.start(epoch=2, power=False)
    assert second.directory.last_run == run_of(1)
    second.append(KEPT, 2)


def survive(point: tuple[int, bool], again: tuple[int, ...], *, power: bool, seed: int) -> None:
    disk, ledger = MortalDisk(), Ledger()
    disk.die_after(point[0], halfway=point[1])
    with pytest.raises(DEAD):
        two_lives(disk, ledger)
    random = Random(seed)
    for life, dies_after in enumerate((*again, None)):
        if power:
            disk.power_loss(random)
        else:
            disk.kill()
        disk.die_after(dies_after, halfway=life % 2 == 0)
        boot_id = f"boot {life}" if power else "first boot"
        try:
            next_life = Life(disk, copy.deepcopy(ledger), boot_id)
            next_life.start(epoch=3 + life, power=power)
        except DEAD:
            continue
        disk.die_after(None)
        if KEPT in next_life.logs:
            next_life.append(KEPT, 2)
            next_life.flush(KEPT)
        return


def points() -> list[tuple[int, bool]]:
    disk = MortalDisk()
    two_lives(disk, Ledger())
    return [(point.operation, point.halfway) for point in crash_points(disk.done)]


@pytest.mark.parametrize("power", [False, True])
def test_it_keeps_its_word_wherever_it_dies(power: bool) -> None:
    every = points()
    assert len(every) > 60
    for place, point in enumerate(every):
        survive(point, (place % 12,), power=power, seed=place)


def test_what_was_deleted_is_no_loss_though_the_next_start_dies_on_the_way() -> None:
    """The checkpoints still have its offsets; the name that says why it is gone stays until they have not."""
    died, dies_after = True, 0
    while died:
        disk = MortalDisk()
        life = Life(disk, Ledger(), "first boot")
        life.start(epoch=1, power=False)
        for tp in (DELETED, KEPT):
            life.create(tp)
            life.append(tp, 3)
        life.checkpoint()
        life.directory.set_aside(DELETED, life.logs[DELETED], UUID(int=3), "delete")
        disk.kill()
        disk.die_after(dies_after)
        try:
            LogDir(disk, "/data", UUID(int=1), boot_id="first boot").load(CONFIG, {}, NOW_MS, MAY_BLOCK)
            died = False
        except DEAD:
            disk.kill()
        disk.die_after(None)
        after = LogDir(disk, "/data", UUID(int=1), boot_id="first boot")
        logs, _ = after.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
        assert after.last_run == run_of(1), dies_after
        assert set(logs) == {KEPT}
        assert not any(name.endswith("-delete") for name in disk.list("/data", MAY_BLOCK))
        dies_after += 1
    assert dies_after > 20


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True])
def test_it_keeps_its_word_though_it_dies_three_times_more(power: bool) -> None:
    for place, point in enumerate(points()):
        for second in range(12):
            for third in (0, 2, 5):
                survive(point, (second, third, second + third), power=power, seed=place * 100 + second)
