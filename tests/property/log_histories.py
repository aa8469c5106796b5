"""Histories of a log: steps (log_steps.py) that are played against the product's log and a list of records.

A history that goes wrong can be made smaller: what a failure shows is the shortest story found that still
goes wrong. The disk is simulated; a step and all that is asked of the log after it take about a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from chaos.sim.disk import SimDisk
from data_plane.log.compact_log import cleanable, finish_replacing, plan_cleaning, replace_segments
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.recovery import LogCorruptError
from data_plane.log.retention import delete_old_segments
from data_plane.log.validation import AppendOrigin
from metadata_quorum.foundation.batch import (
    Record,
    decode_batch,
    encode_batch,
    encode_end_txn_marker,
    iter_headers,
)
from tests.property.log_directory_moves import DirectoryMove
from tests.property.log_steps import MEANWHILE, Step
from tests.support.logs import NOW_MS, flush, open_log, read_committed
from tests.support.may_block import MAY_BLOCK

KEYS: Final = (b"a", b"b", b"c")
PRODUCERS: Final = (1, 2, 3)
RETENTION_MS: Final = 1_000
DIRECTORIES: Final = ("/d", "/e")

Shown = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


@dataclass(frozen=True)
class Written:
    """A batch as it was acknowledged. A marker has no records."""

    base: int
    records: tuple[tuple[bytes, bytes | None], ...]
    epoch: int
    time: int
    producer: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    commits: bool | None = None
    coordinator_epoch: int = -1

    @property
    def last(self) -> int:
        return self.base + max(len(self.records), 1) - 1


@dataclass
class Known:
    """What a log must know of a producer, and the offsets of the batches that say so."""

    epoch: int
    last_sequence: int = -1
    coordinator_epoch: int = -1
    last_time: int = -1
    data: int = -1
    marker: int = -1
    opened: int | None = None


class Beyond(Exception):
    """The log alone cannot be what the list says."""


class History:
    """The log, and what it must say."""

    def __init__(self, config: LogConfig) -> None:
        self.disk = SimDisk()
        for directory in DIRECTORIES:
            self.disk.make_dirs(directory)
        self.path = f"{DIRECTORIES[0]}/t-0"
        self.moving: DirectoryMove | None = None
        self.config = config
        self.now_ms = NOW_MS
        self.batches: list[Written] = []
        self.start = self.end = self.epoch = 0
        self.point = 0  # the recovery point that a checkpoint would have
        self.values = 0
        self.replicated = 0
        self.expired: set[int] = set()  # a restart may know them still, but nothing else of them than was
        self.truncation_unsynced = False  # then a loss of power may bring back what was truncated
        self.story: list[str] = []
        self.log = self.open()

    def open(self, *, clean: bool = False) -> UnifiedLog:
        """A copy that is under way begins anew."""
        if self.moving is not None:
            self.moving.forget()
            self.moving = None
        log = open_log(
            self.path, self.config, disk=self.disk, now_ms=self.now_ms, clean=clean,
            recovery_point=self.point, log_start_offset=self.start,
        )  # fmt: skip
        self.point = min(self.point, log.recovery_point)  # a start checkpoints where it had to fall back
        return log

    # --- steps

    def make(self, step: Step) -> None:
        self.now_ms += step.later_ms
        self.story.append(f"{step.what} at {self.end}")
        getattr(self, step.what)(*step.numbers)

    def meanwhile(self, number: int) -> bool:
        """Perhaps something else happens now; whether the log has outlived it."""
        log = self.log
        place = number % (2 * len(MEANWHILE))
        if place < len(MEANWHILE):
            self.story[-1] += f" ({MEANWHILE[place]} at {self.end})"
            numbers = [number * factor % (1 << 16) for factor in (7_919, 31, 101, 13)]
            getattr(self, MEANWHILE[place])(*numbers)
        return self.log is log

    def write(self, count: int, key: int, time: int, producer: int) -> None:
        sequence = producer_epoch = -1
        if producer >= 0:
            known = self.known().get(producer, Known(0))
            sequence, producer_epoch = known.last_sequence + 1, known.epoch
            state = self.log.producers.states.get(producer)
            if sequence and state is not None and not state.batches:
                return  # all but a marker is deleted: such a producer is refused, and begins a new epoch
        records: list[tuple[bytes, bytes | None]] = []
        for i in range(1 + count % 3):
            self.values += 1
            empty = count % 7 == 0 and producer < 0
            records.append((KEYS[(key + i) % len(KEYS)], None if empty else b"%d" % self.values + b"." * 20))
        time = NOW_MS + time % 1_000
        data = encode_batch(
            [Record(-1, time, key, value) for key, value in records],
            producer_id=producer, producer_epoch=producer_epoch, base_sequence=sequence,
            transactional=producer >= 0,
        )  # fmt: skip
        self.flush_truncation()
        info = self.log.append_as_leader(bytearray(data), leader_epoch=self.epoch, now_ms=self.now_ms)
        assert info.first_offset == self.end
        self.wrote(Written(self.end, tuple(records), self.epoch, time, producer, producer_epoch, sequence))

    def wrote(self, batch: Written) -> None:
        self.batches.append(batch)
        self.end = batch.last + 1

    def put(self, count: int, key: int, time: int, _: int) -> None:
        self.write(count, key, time, -1)

    def transact(self, count: int, key: int, time: int, producer: int) -> None:
        self.write(count, key, time, PRODUCERS[producer % len(PRODUCERS)])

    def end_some(self, which: int, commit: int, bump: int, _: int) -> None:
        opened = sorted(self.opened())
        if not opened:
            return
        producer = opened[which % len(opened)]
        written = Written(
            self.end, (), self.epoch, self.now_ms, producer, self.known()[producer].epoch + bump % 2,
            commits=bool(commit % 2), coordinator_epoch=self.epoch,
        )  # fmt: skip
        marker = encode_end_txn_marker(
            commit=bool(commit % 2),
            coordinator_epoch=written.coordinator_epoch,
            producer_id=producer,
            producer_epoch=written.producer_epoch,
            timestamp=self.now_ms,
        )
        self.flush_truncation()
        self.log.append_as_leader(
            bytearray(marker), leader_epoch=self.epoch, now_ms=self.now_ms, origin=AppendOrigin.COORDINATOR
        )
        self.story[-1] += f" {producer} {'commits' if commit % 2 else 'aborts'}"
        self.wrote(written)

    def roll(self, *_: int) -> None:
        self.log.roll(self.now_ms)

    def clean(self, memory: int, first: int, second: int, third: int) -> None:
        unstable = self.log.first_unstable_offset(self.end)
        to_clean = cleanable(self.log, self.end if unstable is None else unstable, self.now_ms)
        if not self.config.compact or not to_clean.is_due(self.config):
            return
        work = plan_cleaning(self.log, to_clean, self.now_ms, 700 if memory % 4 == 0 else 1 << 20)
        self.replicated = max(self.replicated, self.end)
        if not self.meanwhile(first):
            return
        if not work.cancelled:
            work.run(MAY_BLOCK)
        if not self.meanwhile(second):
            return
        if not replace_segments(self.log, work):
            assert work.cancelled
            work.discard(MAY_BLOCK)
            return
        self.story[-1] += f" up to {work.cleaned_to}"
        self.check()
        if not self.meanwhile(third):
            return
        if memory % 3 == 0:
            self.story[-1] += ", killed in between"
            self.kill(memory)
            return
        self.disk.sync_dir(self.path, MAY_BLOCK)
        finish_replacing(self.log, work)
        for deletion in self.log.take_deletions():
            deletion.run(MAY_BLOCK)

    def truncate(self, offset: int, first: int, second: int, _: int) -> None:
        """As a follower does: never below the high watermark that a cleaning went by."""
        low = max(self.start, self.replicated, self.log.segments[0].base_offset)
        offset = low + offset % (self.end - low + 1)
        self.story[-1] += f" to {offset}"
        work = self.log.prepare_truncation(offset)
        self.point = min(self.point, self.log.recovery_point)
        if work is None or not self.meanwhile(first):
            return
        work.run(MAY_BLOCK)
        if not self.meanwhile(second):
            return
        if not self.log.truncate_to(work):
            self.log.discard_truncation()
            return
        self.truncation_unsynced = True
        straddled = self.log.log_end_offset
        if self.moving is not None:
            self.moving.truncated(straddled)
        assert straddled <= offset
        self.batches = [b for b in self.batches if b.last < straddled]
        self.end = straddled
        self.start = min(self.start, self.end)
        self.point = min(self.point, self.log.recovery_point)

    def restart_empty(self, ahead: int, *_: int) -> None:
        if self.moving is not None:
            self.moving.truncated(0)
        self.start = self.end = self.end + ahead % 100
        self.log.truncate_fully_and_start_at(self.start)
        self.truncation_unsynced = True
        self.batches.clear()
        self.point = min(self.point, self.log.recovery_point)

    def delete_records(self, offset: int, *_: int) -> None:
        self.start += offset % (self.end - self.start + 1)
        self.log.advance_log_start(self.start)
        self.story[-1] += f" below {self.start}"

    def retire(self, *_: int) -> None:
        for deletion in delete_old_segments(self.log, self.now_ms, self.end):
            deletion.run(MAY_BLOCK)
        self.start = self.log.log_start_offset

    def elect(self, *_: int) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    def move(self, steps: int, tag: int, *_: int) -> None:
        """To the other directory, or some steps further on the way there."""
        if self.moving is None:
            (target,) = (each for each in DIRECTORIES if not self.path.startswith(each))
            self.moving = DirectoryMove(self.disk, self.log, target, tag, self.now_ms, self.arrived)
        for _ in range(1 + steps % 9):
            if self.moving is not None:
                self.moving.go_on()

    def arrived(self, log: UnifiedLog) -> None:
        """Nothing is forgotten on the way, not even what no record shows any more."""
        assert log.producers.states == self.log.producers.states
        assert log.epochs.entries == self.log.epochs.entries
        self.disk.remove_tree(self.path, MAY_BLOCK)
        self.log, self.path, self.moving = log, log.directory, None
        self.point = log.recovery_point
        self.truncation_unsynced = not log.unflushed.truncation_is_durable
        self.story[-1] += f" arrives in {self.path}"

    def expire(self, *_: int) -> None:
        before = set(self.log.producers.states)
        self.log.producers.expire(self.now_ms, 10_000)
        self.expired |= before - set(self.log.producers.states)

    def flush_truncation(self) -> None:
        if not self.log.unflushed.truncation_is_durable:
            self.flush()

    def flush(self, *_: int) -> None:
        flush(self.log)
        self.point = self.log.recovery_point
        self.truncation_unsynced = False

    def kill(self, checkpointed: int, *_: int) -> None:
        """The page cache stays; the checkpoint may be older than what was flushed."""
        if checkpointed % 3 == 0:
            self.point = 0
        self.disk.kill()
        self.log = self.open()

    def restart(self, *_: int) -> None:
        self.log.close_clean(MAY_BLOCK)
        self.point = self.log.recovery_point
        self.truncation_unsynced = False
        self.disk.kill()
        self.log = self.open(clean=True)

    def power_loss(self, seed: int, *_: int) -> None:
        """Whatever was flushed is there."""
        self.flush()
        self.disk.power_loss(Random(seed))
        self.log = self.open()

    def lose_tail(self, seed: int, *_: int) -> None:
        """What was not flushed may be lost, from some batch on."""
        if self.truncation_unsynced:
            self.power_loss(seed)
            return
        flushed = self.point
        self.disk.power_loss(Random(seed), names_in_order=True)
        self.log = self.open()
        end = self.log.log_end_offset
        self.story[-1] += f" behind {end}, flushed up to {flushed}"
        assert flushed <= end <= self.end
        self.batches = [b for b in self.batches if b.last < end]
        self.end = end
        if end < self.replicated:
            raise Beyond  # a cleaning went by what only the other replicas have now

    # --- what must hold

    def known(self) -> dict[int, Known]:
        """What follows of each producer from all that was written."""
        producers: dict[int, Known] = {}
        for batch in self.batches:
            if batch.producer < 0:
                continue
            known = producers.setdefault(batch.producer, Known(batch.producer_epoch))
            if batch.producer_epoch > known.epoch:
                known.epoch, known.last_sequence, known.data = batch.producer_epoch, -1, -1
            known.last_time = batch.time
            if batch.commits is not None:
                known.coordinator_epoch, known.marker, known.opened = (
                    batch.coordinator_epoch,
                    batch.base,
                    None,
                )
            else:
                known.last_sequence, known.data = batch.sequence + len(batch.records) - 1, batch.last
                known.opened = batch.base if known.opened is None else known.opened
        return producers

    def opened(self) -> dict[int, int]:
        """Open transactions: producer, first offset."""
        return {p: known.opened for p, known in self.known().items() if known.opened is not None}

    def committed(self, stable: int) -> list[Shown]:
        shown: list[Shown] = []
        pending: dict[int, list[Shown]] = {}
        for batch in self.batches:
            records = [(batch.base + i, key, value) for i, (key, value) in enumerate(batch.records)]
            if batch.commits is not None:
                ended = pending.pop(batch.producer, [])
                shown += ended if batch.commits else []
            elif batch.producer >= 0:
                pending.setdefault(batch.producer, []).extend(records)
            else:
                shown += records
        return sorted(r for r in shown if self.start <= r[0] < stable)

    def check(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        opened = self.opened()
        unstable = log.first_unstable_offset(self.end)
        if all(first >= log.segments[0].base_offset for first in opened.values()):
            assert unstable == min((max(first, self.start) for first in opened.values()), default=None)
        elif unstable is not None:  # of deleted segments a restart may not know any more
            assert unstable >= self.start
        stable = self.end if unstable is None else unstable
        for start in {self.start, (self.start + stable) // 2, max(stable - 1, self.start)}:
            shown = read_committed(log, start)
            expected = [r for r in self.committed(stable) if r[0] >= start]
            if not self.config.compact:
                assert shown == expected
            else:
                assert set(shown) <= set(expected), "what was never committed, or is gone"
                assert newest(shown) == newest(expected)
        for segment in log.segments:
            for _, header in segment.headers(0, segment.size):
                if header.last_offset >= self.start:
                    known = log.epochs.epoch_at(max(header.base_offset, self.start))
                    assert known == header.partition_leader_epoch
        self.check_producers(log, log.segments[0].base_offset)
        self.check_times()

    def check_producers(self, log: UnifiedLog, first: int) -> None:
        """Nothing else than was written, and all of it from `first` on, which is there."""
        written = self.known()
        assert log.producers.states.keys() <= written.keys()
        for producer, known in written.items():
            state = log.producers.states.get(producer)
            there = self.end if producer in self.expired else first  # what is below may be forgotten
            if state is None:
                assert max(known.data, known.marker) < there, f"producer {producer} is forgotten"
                continue
            assert state.epoch == known.epoch
            if state.batches or known.data >= there:
                assert state.last_sequence == known.last_sequence
            if state.coordinator_epoch >= 0 or known.marker >= there:
                assert state.coordinator_epoch == known.coordinator_epoch
            if max(known.data, known.marker) >= there:
                assert state.last_timestamp == known.last_time
            opened = state.current_txn_first_offset
            if known.opened is None:
                assert opened is None
            elif known.opened >= first:  # what nobody reads any more may be compacted away
                assert opened is not None
                assert max(opened, self.start) == max(known.opened, self.start)

    def check_times(self) -> None:
        """Against all records that are there, committed or not."""
        stored = [(r.timestamp, -r.offset) for r in all_records(self.log)]
        found = self.log.search_time(None).run(MAY_BLOCK)
        assert (found and (found.timestamp, -found.offset)) == max(stored, default=None)
        middle = NOW_MS + 500
        first = [-offset for time, offset in stored if time >= middle and -offset >= self.start]
        at = self.log.search_time(middle).run(MAY_BLOCK)
        assert (at and at.offset) == min(first, default=None)

    def check_copy(self) -> None:
        """A new follower comes to the end, and has the same."""
        copy = open_log("/d/copy-0", replace(self.config, segment_bytes=1_000), disk=self.disk)
        copy.truncate_fully_and_start_at(self.start)
        while copy.log_end_offset < self.end:
            piece = self.log.read(copy.log_end_offset, 300, at_least_one_batch=True)
            assert copy.append_as_follower(piece.read(MAY_BLOCK)) is not None, (
                f"stuck at {copy.log_end_offset}"
            )
        shown = read_committed(self.log)
        self.check_producers(copy, self.start)
        # Of a transaction whose first records are deleted it may not know that it is open.
        assert [r for r in read_committed(copy, self.start) if r in shown] == shown


def newest(shown: list[Shown]) -> dict[bytes | None, Shown]:
    """By key, without those whose newest is a tombstone."""
    last = {key: (offset, key, value) for offset, key, value in shown}
    return {key: record for key, record in last.items() if record[2] is not None}


def all_records(log: UnifiedLog) -> list[Record]:
    found: list[Record] = []
    for segment in log.segments:
        data = segment.file.read(0, segment.size)
        for position, _ in iter_headers(data):
            found += decode_batch(data, position)  # markers too have their time, as in Kafka
    return found


def play(config: LogConfig, steps: list[Step]) -> tuple[list[str], AssertionError | None]:
    history = History(config)
    try:
        for step in steps:
            history.make(step)
            history.check()
        history.check_copy()
    except Beyond:
        return history.story, None
    except Exception as e:  # noqa: BLE001 - whatever goes wrong is to be made smaller
        if isinstance(e, LogCorruptError) and steps[len(history.story) - 1].what == "lose_tail":
            return history.story, None  # good batches behind lost ones: the replica stays offline
        error = AssertionError(f"{type(e).__name__}: {e}")
        error.__cause__ = e
        return history.story, error
    return history.story, None
