"""A log against a plain list of batches: appends, rolls, truncations, retention, crashes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from data_plane.log.config import LogConfig
from data_plane.log.dump import verify
from data_plane.log.load import load
from data_plane.log.log import UnifiedLog
from data_plane.log.retention import delete_old_segments
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import OsDisk, OsFile
from tests.support.logs import NOW_MS, batch, read_all, truncate
from tests.support.may_block import MAY_BLOCK
from tests.support.suite.examples import examples

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=120, retention_bytes=1500, file_delete_delay_ms=0)


class Written(NamedTuple):
    """One batch of the model."""

    offset: int
    values: list[bytes]
    epoch: int
    sequence: int

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.values)


class NotingFile(OsFile):
    """Remembers how much of it was synced, and spares the device the work."""

    def __init__(self, fd: int, synced: dict[str, int], path: str) -> None:
        super().__init__(fd)
        self._synced, self._path = synced, path

    def sync(self, may_block: MayBlock) -> None:
        self._synced[self._path] = self.size()

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._synced[self._path] = min(self._synced.get(self._path, 0), size)


class NotingDisk(OsDisk):
    """Tells per file how many bytes a loss of power must leave."""

    def __init__(self) -> None:
        self.synced: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False) -> OsFile:
        plain = super().open(path, create=create)
        noting = NotingFile(plain.fd, self.synced, path)
        plain.fd = -1
        return noting

    def sync_dir(self, path: str, may_block: MayBlock) -> None:
        pass

    def remove(self, path: str) -> None:
        super().remove(path)
        self.synced.pop(path, None)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.synced[target] = self.synced.pop(source, 0)


class LogMachine(RuleBasedStateMachine):
    """The model is a list of batches; producer 7 writes every other one."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.disk = NotingDisk()
        self.batches: list[Written] = []
        self.start = self.end = 0
        self.epoch = 0
        self.checkpoint = 0
        self.count = 0
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> UnifiedLog:
        return UnifiedLog(
            load(
                self.disk,
                str(self.directory),
                CONFIG,
                recovery_point=self.checkpoint,
                log_start_offset=self.start,
                clean=clean,
                now_ms=NOW_MS,
                may_block=MAY_BLOCK,
            )
        )

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.directory)

    # --- what happens to a log

    @rule(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=3), idempotent=st.booleans())
    def lead(self, sizes: list[int], idempotent: bool) -> None:
        self.count += 1
        values = [b"%d-" % self.count + b"x" * size for size in sizes]
        last = max((b.sequence + len(b.values) for b in self.batches if b.sequence >= 0), default=0)
        known = 7 in self.log.producers.states
        idempotent = idempotent and (known or last == 0)
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": last} if idempotent else {}
        info = self.log.append_as_leader(
            batch(*values, **fields), leader_epoch=self.epoch, now_ms=NOW_MS + self.count
        )
        assert info.first_offset == self.end
        self.wrote(Written(info.first_offset, values, self.epoch, last if idempotent else -1))

    @rule(count=st.integers(1, 4))
    def follow(self, count: int) -> None:
        run = bytearray()
        for _ in range(count):
            self.count += 1
            written = Written(self.end, [b"f%d" % self.count], self.epoch, -1)
            run += batch(*written.values, base_offset=self.end, leader_epoch=self.epoch)
            self.wrote(written)
        self.log.append_as_follower(run)

    def wrote(self, written: Written) -> None:
        self.batches.append(written)
        self.end = written.next_offset

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        work = self.log.prepare_flush()
        if work is not None:
            work.run(MAY_BLOCK)
            self.log.flush_done(work)
        self.checkpoint = self.log.recovery_point

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        truncate(self.log, offset)
        self.batches = [b for b in self.batches if b.next_offset <= offset]
        inside = self.batches[-1].next_offset if self.batches else 0  # a batch may reach across the start
        self.end = self.log.log_end_offset
        assert inside <= self.end <= offset
        self.start = min(self.start, self.end)
        self.checkpoint = self.log.recovery_point

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.advance_log_start(offset)
        self.start = max(self.start, offset)

    @rule()
    def retain(self) -> None:
        for deletion in delete_old_segments(self.log, NOW_MS, self.end):
            deletion.run(MAY_BLOCK)
        self.start = max(self.start, self.log.log_start_offset)
        assert self.log.log_start_offset <= self.end

    # --- ends and new beginnings

    @rule()
    def restart(self) -> None:
        self.log.close_clean(MAY_BLOCK)
        self.checkpoint = self.log.recovery_point
        self.log = self.open(clean=True)

    @rule()
    def kill(self) -> None:
        """The page cache survives; indexes and the epochs' file may be behind."""
        self.log = self.open(clean=False)

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """The unsynced end of the last segment goes, at any byte."""
        path = Path(self.log.segments[-1].path)
        size = path.stat().st_size
        kept = data.draw(st.integers(min(self.disk.synced.get(str(path), 0), size), size))
        with path.open("r+b") as file:
            file.truncate(kept)
        self.log = self.open(clean=False)
        end = self.log.log_end_offset
        assert end >= self.checkpoint, "synced records are never lost"
        assert end <= self.end
        self.batches = [b for b in self.batches if b.next_offset <= end]
        self.end = end
        self.start = self.log.log_start_offset

    # --- what must hold

    @invariant()
    def reads_are_the_models(self) -> None:
        if not hasattr(self, "log"):
            return
        expected = [
            (b.offset + i, value)
            for b in self.batches
            for i, value in enumerate(b.values)
            if b.offset + i >= self.start
        ]
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.start
        assert read_all(self.log) == expected

    @invariant()
    def epochs_are_the_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        for written in (b for b in self.batches if b.next_offset > self.start):
            assert self.log.epochs.epoch_at(max(written.offset, self.start)) == written.epoch
        entries = self.log.epochs.entries
        assert entries == sorted(set(entries))

    @invariant()
    def the_producer_is_known(self) -> None:
        if not hasattr(self, "log"):
            return
        idempotent = [b for b in self.batches if b.sequence >= 0 and b.offset >= self.start]
        if idempotent:
            last = idempotent[-1]
            assert self.log.producers.states[7].last_sequence == last.sequence + len(last.values) - 1

    @rule()
    def files_are_sound(self) -> None:
        work = self.log.prepare_flush()
        if work is not None:
            work.run(MAY_BLOCK)
            self.log.flush_done(work)
        for path in self.directory.iterdir():
            if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                assert verify(OsDisk(), str(path)) == []


@pytest.mark.row("L7")
class TestLogMachine(LogMachine.TestCase):
    settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
