"""A log's work dies between any two of its disk operations, by a kill or by a loss of power, and again while
the next start mends what it left. What must come back stands beside each work.

Each work begins on a copy of a disk on which all is durable. A crash point takes about 2 ms.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log import checkpoints
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.recovery import LogCorruptError
from data_plane.log.retention import delete_old_segments
from data_plane.log.validation import AppendOrigin
from metadata_quorum.foundation.batch import encode_end_txn_marker
from metadata_quorum.foundation.model import TopicPartition
from tests.support.logs import NOW_MS, flush, lead, open_log, read_committed
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.compacted_log import COMPACT, DAY_MS, clean, put
from tests.unit.log.transactional_log import end_transaction

PATH: Final = "/d/t-0"
CHECKPOINT: Final = f"/d/{checkpoints.RECOVERY_POINTS}"
TP: Final = TopicPartition("t", 0)
RETIRING: Final = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_bytes=500)

pytestmark = pytest.mark.row("L7")


class Dead(BaseException):
    """Nothing runs any more; no handler for errors may hear of it."""


class MortalDisk(SimDisk):
    """Dies before the operation after `left` more."""

    left: int | None = None

    def strike(self, operation: str, path: str) -> None:
        if operation not in ("read", "open") and self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Dead
        super().strike(operation, path)


@dataclass(frozen=True)
class Seen:
    """What is asked of a log after a start."""

    newest: dict[bytes | None, tuple[int, bytes | None]]  # by key, committed, no tombstones
    start: int
    end: int
    unstable: int | None
    sequences: dict[int, int]
    epochs: tuple[tuple[int, int], ...]


def seen(log: UnifiedLog) -> Seen:
    newest = {key: (offset, value) for offset, key, value in read_committed(log)}
    return Seen(
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
    halfway: Callable[[Seen, Seen, Seen], bool]
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


def never(found: Seen, before: Seen, after: Seen) -> bool:
    return False


def begins_the_same(found: Seen, before: Seen, after: Seen) -> bool:
    """A part of what was appended or truncated."""
    low, high = sorted((before.end, after.end))
    return found.start == before.start and low <= found.end <= high


def from_the_truncation_on(found: Seen, before: Seen, after: Seen) -> bool:
    """Truncated, and not written again yet."""
    return found.start == before.start and 4 <= found.end <= before.end


def ends_the_same(found: Seen, before: Seen, after: Seen) -> bool:
    """A part of the old segments is gone, or all."""
    gone = found.start == found.end
    return gone or (before.start <= found.start <= after.start and found.end == before.end)


def _close(log: UnifiedLog) -> None:
    log.close_clean(MAY_BLOCK)


WORKS: Final = {
    "cleaned": Work(COMPACT, transactions_over_many_segments, cleaned_late, never),
    "merged": Work(
        replace(COMPACT, segment_bytes=900), transactions_over_many_segments, cleaned_late, never
    ),
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


def deaths(work: Work, *, power: bool, again: int, seeds: int) -> Iterator[tuple[str, Seen, Seen, Seen]]:
    """Every crash point: a name for it, what was found, and what the work began and would have ended with."""
    origin = durable(work)

    def opened(disk: MortalDisk) -> UnifiedLog:
        """As log_dirs.py does."""
        point = checkpoints.read_offsets(disk, CHECKPOINT, MAY_BLOCK)[TP]
        log = open_log(PATH, work.config, disk=disk, recovery_point=point)
        checkpoint(log)
        return log

    whole = copy.deepcopy(origin)
    whole.left = 1 << 30
    begun = opened(whole)
    before = seen(begun)
    first = (1 << 30) - whole.left
    work.done(begun)
    operations = (1 << 30) - whole.left
    whole.left = None
    whole.kill()
    after = seen(opened(whole))
    assert operations > first
    for at in range(operations):
        for seed in range(seeds):
            disk = copy.deepcopy(origin)
            random = Random(at * 1_000 + seed)
            disk.left = at
            starts = 0
            log: UnifiedLog | None = None
            while True:
                try:
                    log = opened(disk)
                    if not starts:
                        work.done(log)
                    break
                except Dead:
                    starts += 1
                except LogCorruptError:
                    if work.config.compact or not power:
                        raise
                    log = None  # good batches stand behind what was lost: it stays offline, and says so
                    break
                if power:
                    # What a cleaning does must hold on any file system.
                    disk.power_loss(random, names_in_order=not work.config.compact)
                else:
                    disk.kill()
                disk.left = random.randrange(1, 15) if starts <= again else None
            disk.left = None
            if log is not None:
                yield f"operation {at} of {operations}, seed {seed}", seen(log), before, after


def enumerate_deaths(name: str, *, power: bool, again: int = 0, seeds: int = 1) -> None:
    work = WORKS[name]
    for where, found, before, after in deaths(work, power=power, again=again, seeds=seeds):
        right = found in (before, after) or work.halfway(found, before, after)
        assert right, f"{name}, {where}:\n{found}\nbefore {before}\nafter {after}"


@pytest.mark.parametrize("name", WORKS)
def test_a_process_that_dies_between_any_two_operations(name: str) -> None:
    enumerate_deaths(name, power=False)


@pytest.mark.parametrize("name", WORKS)
def test_a_machine_that_dies_between_any_two_operations(name: str) -> None:
    enumerate_deaths(name, power=True, again=2)


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("name", WORKS)
def test_dying_again_and_again(name: str, power: bool) -> None:
    enumerate_deaths(name, power=power, again=4, seeds=40)
