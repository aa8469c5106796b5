"""A log that moves to another directory while other things happen to it: the product's own move, by steps.

    ReplicaMoves.begin -> its coroutine, left at each piece of work for the executor: before it, and after it
    on_complete -> `arrived`: the copy is the log now

A history (log_histories.py) takes a step when it draws one, so that anything may come between two.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from chaos.sim.disk import SimDisk
from data_plane.log.log import UnifiedLog
from data_plane.log_manager.log_dirs import LogDir
from data_plane.quotas.replication import ReplicationQuota
from data_plane.replication.replica_moves import ReplicaMoves
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.model import TopicPartition
from tests.support.may_block import MAY_BLOCK

T = TypeVar("T")

TP: Final = TopicPartition("t", 0)
TOPIC_ID: Final = UUID(int=7)


class _Work(Generic[T]):
    """For the executor: one step until it is run, one until the loop hears of it."""

    def __init__(self, work: Callable[[MayBlock], T]) -> None:
        self._work = work

    def __await__(self) -> Generator[None, None, T]:
        yield
        result = self._work(MAY_BLOCK)
        yield
        return result


class _Task:
    """A coroutine that goes on when it is told to."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.coroutine = coroutine

    def cancel(self) -> None:
        pass  # it is not stepped any more

    def add_done_callback(self, _: object) -> None:
        pass


class Replica:
    """Of the log that moves."""

    tp, topic_id = TP, TOPIC_ID
    move: Any = None

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log

    @property
    def high_watermark(self) -> int:
        """All is committed."""
        return self.log.log_end_offset


class DirectoryMove:
    """To a directory that exists. `go_on` until `is_over`; what the product would report raises instead."""

    def __init__(
        self,
        disk: SimDisk,
        log: UnifiedLog,
        path: str,
        tag: int,
        now_ms: int,
        arrived: Callable[[UnifiedLog], None],
    ) -> None:
        self._disk = disk
        self._target = LogDir(disk, path)
        self._replica: Any = Replica(log)
        self._arrived = arrived
        self._tasks: list[_Task] = []
        self.is_over = False
        broker: Any = self
        moves = ReplicaMoves(
            broker, broker, broker, broker, lambda: now_ms, Random(tag), ReplicationQuota(),
            on_complete=self._complete,
        )  # fmt: skip
        moves.begin(self._replica, self._target)

    def go_on(self) -> None:
        """Raises what would have ended the move."""
        try:
            self._tasks[0].coroutine.send(None)
        except StopIteration:
            assert self.is_over, "it was given up"

    def truncated(self, offset: int) -> None:
        """The log was, to `offset`."""
        self._replica.move.truncate(offset)

    def forget(self) -> None:
        """The process has died."""
        self._tasks[0].coroutine.close()
        for name in self._disk.list(self._target.path, MAY_BLOCK):
            self._disk.remove_tree(f"{self._target.path}/{name}", MAY_BLOCK)

    def _complete(self, _: object, log: UnifiedLog, __: object) -> None:
        self.is_over = True
        self._replica.log = log
        self._arrived(log)

    # --- as much of LogManager, LogDirFailures, FailureHandler, BackgroundWork and the loop as a move needs

    def dir_of(self, _: object) -> None:
        return None

    def subscribe(self, _: object) -> None:
        pass

    def report(self, _: object, error: Exception) -> None:
        raise AssertionError("the directory was given up") from error

    def storage_failed(self, _: object, error: Exception) -> None:
        raise AssertionError("the log was given up") from error

    def fault(self, _: str, error: Exception) -> None:
        raise AssertionError("the move was given up") from error

    @property
    def loop(self) -> DirectoryMove:
        return self

    def blocking(self, work: Callable[[MayBlock], T]) -> _Work[T]:
        return _Work(work)

    def create_task(self, work: Coroutine[Any, Any, None], name: str) -> _Task:
        if self._tasks:  # the removal of a copy that was given up
            work.close()
        self._tasks.append(_Task(work))
        return self._tasks[-1]

    def create_future(self) -> _Work[None]:
        """Of a turn: it comes with the next step."""
        return _Work(lambda _: None)

    def call_soon(self, _: object) -> None:
        pass

    def time(self) -> float:
        return 0.0
