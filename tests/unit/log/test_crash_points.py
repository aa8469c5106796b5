"""A log's work dies at any of its disk operations, by a kill or by a loss of power, and again while
the next start mends what it left. What must come back stands beside each work.

Each work begins on a copy of a disk on which all is durable. A crash point takes about 2 ms.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import pytest

from data_plane.log import checkpoints
from data_plane.log.compact_log import cleanable, plan_cleaning
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.recovery import LogCorruptError
from data_plane.log.retention import delete_old_segments
from data_plane.log.validation import AppendOrigin
from metadata_quorum.foundation.batch import encode_end_txn_marker
from metadata_quorum.foundation.model import TopicPartition
from tests.support.logs import NOW_MS, flush, lead, open_log, read_committed
from tests.support.may_block import MAY_BLOCK
from tests.support.mortal_disk import DEAD, MortalDisk, crash_points
from tests.unit.log.compacted_log import COMPACT, DAY_MS, clean, put
from tests.unit.log.transactional_log import end_transaction

PATH: Final = "/d/t-0"
CHECKPOINT: Final = f"/d/{checkpoints.RECOVERY_POINTS}"
TP: Final = TopicPartition("t", 0)
MERGING: Final = replace(COMPACT, segment_bytes=900)
RETIRING: Final = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_bytes=500)

pytestmark = pytest.mark.row("L7")


@dataclass(frozen=True)
class RecoveredLog:
    """What is asked of a log after a start."""

    newest: dict[bytes | None, tuple[int, bytes | None]]  # by key, committed, no tombstones
    start: int
    end: int
    unstable: int | None
    sequences: dict[int, int]
    epochs: tuple[tuple[int, int], ...]


def seen(log: UnifiedLog) -> RecoveredLog:
    newest = {key: (offset, value) for offset, key, value in read_committed(log)}
    return RecoveredLog(
        {key: found for key, found in newest.items() if found[1] is not None},
        log.log_start_offset,
        log.log_end_offset,
        log.first_unstable_offset(log.log_end_offset),
        {producer: state.last_sequence for producer, state in log.producers.states.items()},
        tuple(log.epochs.entries),
    )


@dataclass(frozen=True)
class Work:
    """How the log comes to be, what is done to it, and what may come back of it."""

    config: LogConfig
    made: Callable[[UnifiedLog], None]
    done: Callable[[UnifiedLog], object]
    halfway: Callable[[RecoveredLog, RecoveredLog, RecoveredLog], bool]
    """Whether (found, before, after) is right though `found` is neither of them."""


def transactions_over_many_segments(log: UnifiedLog) -> None:
    """Tombstones that have had their time, and aborted records whose markers lie in other segments."""
    transaction = {"producer_epoch": 0, "transactional": True}
    put(log, (b"gone", b"once there"), (b"a", b"old"), (b"fill-1", b"x" * 150))
    put(log, (b"t", b"aborted"), producer_id=9, base_sequence=0, **transaction)
    put(log, (b"a", b"new"), (b"fill-2", b"x" * 250))
    put(log, (b"gone", None), (b"fill-3", b"x" * 250))
    put(log, (b"t", b"aborted too"), producer_id=9, base_sequence=1, **transaction)
    put(log, (b"fill-4", b"x" * 250))
    end_transaction(log, 9, commit=False)
    put(log, (b"fill-5", b"x" * 250), (b"last", b"1"))
    put(log, (b"u", b"committed"), producer_id=8, base_sequence=0, **transaction)
    end_transaction(log, 8, commit=True)
    put(log, (b"last", None))
    log.roll(NOW_MS)
    clean(log)  # the tombstones get their horizon
    log.cleaned_to = 0


def cleaned_and_not_in_place_yet(log: UnifiedLog) -> None:
    """The merged segments have their `.swap` names, and the old ones lie beside them."""
    transactions_over_many_segments(log)
    log.config = MERGING
    plan_cleaning(log, cleanable(log, log.log_end_offset, NOW_MS + DAY_MS), NOW_MS + DAY_MS).run(MAY_BLOCK)


def epochs_and_a_transaction(log: UnifiedLog) -> None:
    for epoch in range(4):
        for i in range(3):
            lead(log, b"%d-%d" % (epoch, i), b"x" * 60, epoch=epoch)
        if epoch == 1:
            send_in(log, epoch, 7, 0)
    lead(log, b"end", epoch=4)


def send_in(log: UnifiedLog, epoch: int, producer: int, sequence: int) -> None:
    lead(
        log, b"t", epoch=epoch, producer_id=producer, producer_epoch=0, base_sequence=sequence,
        transactional=True,
    )  # fmt: skip


def cleaned_late(log: UnifiedLog) -> None:
    clean(log, now_ms=NOW_MS + DAY_MS)


def checkpoint(log: UnifiedLog) -> None:
    log.disk.write_atomic(CHECKPOINT, checkpoints.encode_offsets({TP: log.recovery_point}), MAY_BLOCK)


def truncated(log: UnifiedLog) -> None:
    work = log.prepare_truncation(5)
    assert work is not None
    work.run(MAY_BLOCK)
    checkpoint(log)
    assert log.truncate_to(work)
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)
    flush(log)


def truncated_and_written_again(log: UnifiedLog) -> None:
    work = log.prepare_truncation(5)
    assert work is not None
    work.run(MAY_BLOCK)
    checkpoint(log)
    assert log.truncate_to(work)
    flush(log)
    log.roll(NOW_MS)
    lead(log, b"another", epoch=9)
    flush(log)
    checkpoint(log)


def restarted_empty(log: UnifiedLog) -> None:
    log.truncate_fully_and_start_at(1000)
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)
    flush(log)


def retired(log: UnifiedLog) -> None:
    for deletion in delete_old_segments(log, NOW_MS, log.log_end_offset):
        deletion.run(MAY_BLOCK)
    flush(log)


def grown(log: UnifiedLog) -> None:
    """Appends over a few rolls, with an abort among them."""
    for i in range(4):
        lead(log, b"more-%d" % i, b"x" * 150, epoch=5)
    send_in(log, 5, 5, 0)
    abort = encode_end_txn_marker(
        commit=False, coordinator_epoch=0, producer_id=5, producer_epoch=0, timestamp=NOW_MS
    )
    log.append_as_leader(bytearray(abort), leader_epoch=5, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    flush(log)
    log.roll(NOW_MS)


def never(found: RecoveredLog, before: RecoveredLog, after: RecoveredLog) -> bool:
    return False


def begins_the_same(found: RecoveredLog, before: RecoveredLog, after: RecoveredLog) -> bool:
    """A part of what was appended or truncated."""
    low, high = sorted((before.end, after.end))
    return found.start == before.start and low <= found.end <= high


def from_the_truncation_on(found: RecoveredLog, before: RecoveredLog, after: RecoveredLog) -> bool:
    """Truncated, and not written again yet."""
    return found.start == before.start and 4 <= found.end <= before.end


def ends_the_same(found: RecoveredLog, before: RecoveredLog, after: RecoveredLog) -> bool:
    """A part of the old segments is gone, or all."""
    gone = found.start == found.end
    return gone or (before.start <= found.start <= after.start and found.end == before.end)


def nothing_more(log: UnifiedLog) -> None:
    """The start alone is the work."""


def _close(log: UnifiedLog) -> None:
    log.close_clean(MAY_BLOCK)


WORKS: Final = {
    "cleaned": Work(COMPACT, transactions_over_many_segments, cleaned_late, never),
    "merged": Work(MERGING, transactions_over_many_segments, cleaned_late, never),
    "put in place": Work(MERGING, cleaned_and_not_in_place_yet, nothing_more, never),
    "grown": Work(RETIRING, epochs_and_a_transaction, grown, begins_the_same),
    "truncated": Work(RETIRING, epochs_and_a_transaction, truncated, begins_the_same),
    "truncated and written again": Work(
        RETIRING, epochs_and_a_transaction, truncated_and_written_again, from_the_truncation_on
    ),
    "restarted empty": Work(RETIRING, epochs_and_a_transaction, restarted_empty, ends_the_same),
    "retired": Work(RETIRING, epochs_and_a_transaction, retired, ends_the_same),
    "closed": Work(RETIRING, epochs_and_a_transaction, _close, never),
}  # fmt: skip


def durable(work: Work) -> MortalDisk:
    """The disk before the work."""
    disk = MortalDisk()
    disk.make_dirs("/d")
    log = open_log(
        PATH, replace(COMPACT, segment_bytes=400) if work.config.compact else work.config, disk=disk
    )
    work.made(log)
    flush(log)
    checkpoint(log)
    return disk


def opened(disk: MortalDisk, work: Work) -> UnifiedLog:
    """As log_dirs.py does."""
    point = checkpoints.read_offsets(disk, CHECKPOINT, MAY_BLOCK)[TP]
    log = open_log(PATH, work.config, disk=disk, recovery_point=point)
    checkpoint(log)
    return log


def survivor(
    disk: MortalDisk, work: Work, recoveries: Sequence[int], random: Random | None
) -> UnifiedLog | None:
    """The log after a death on its way, and one more in each start of `recoveries`, after so many operations.
    `random`: the machine dies, too. None: good batches are behind what was lost, and it stays offline."""
    for start, dies_after in enumerate((*recoveries, None, None)):
        try:
            log = opened(disk, work)
            if not start:
                work.done(log)
            disk.die_after(None)
            return log
        except DEAD:
            disk.die_after(dies_after, halfway=start % 2 == 0)
        except LogCorruptError:
            if work.config.compact or random is None:
                raise
            return None
        if random is None:
            disk.kill()
        else:  # what a cleaning does must hold on any file system
            disk.power_loss(random, names_in_order=not work.config.compact)
    raise AssertionError("it dies once too often")


def enumerate_deaths(
    name: str, *, power: bool, recoveries: Callable[[int], Iterable[tuple[int, ...]]], seeds: int = 1
) -> None:
    """`recoveries`: by the number of a crash point, when the starts after it die."""
    work = WORKS[name]
    origin = durable(work)
    whole = copy.deepcopy(origin)
    whole.done.clear()
    begun = opened(whole, work)
    before = seen(begun)
    work.done(begun)
    points = list(crash_points(whole.done))
    whole.kill()
    after = seen(opened(whole, work))
    for number, point in enumerate(points):
        for again in recoveries(number):
            for seed in range(seeds):
                disk = copy.deepcopy(origin)
                disk.die_after(point.operation, halfway=point.halfway)
                random = Random(f"{point.operation}/{seed}") if power else None
                log = survivor(disk, work, again, random)
                if log is None:
                    continue
                found = seen(log)
                right = found in (before, after) or work.halfway(found, before, after)
                assert right, f"{name}, {point}, {again}, {seed}:\n{found}\nbefore {before}\nafter {after}"


@pytest.mark.parametrize("name", WORKS)
def test_a_process_that_dies_at_any_operation(name: str) -> None:
    enumerate_deaths(name, power=False, recoveries=lambda number: [()])


@pytest.mark.parametrize("name", WORKS)
def test_a_machine_that_dies_at_any_operation(name: str) -> None:
    enumerate_deaths(name, power=True, recoveries=lambda number: [(number % 13, number % 5)])


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("name", WORKS)
def test_dying_again_at_any_operation_of_recovery(name: str, power: bool) -> None:
    """The second death at each operation, the third and the fourth at some."""
    deaths = [(second, third, second + third) for second in range(14) for third in (1, 6)]
    enumerate_deaths(name, power=power, recoveries=lambda number: [(), *deaths])


@pytest.mark.long
@pytest.mark.parametrize("name", WORKS)
def test_what_else_a_loss_of_power_may_leave(name: str) -> None:
    enumerate_deaths(name, power=True, recoveries=lambda number: [(), (number % 13, 3)], seeds=40)
