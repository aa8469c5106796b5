"""One client of the workload: a thread that runs the steps of its generator, and records their outcomes.

A worker is one process of the history at a time. An operation with unknown outcome retires that number
and drops the client: the next one has a new number, and continues to read at this worker's position.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.history import Outcome, Poll
from chaos.workload.consumer import ReadingClient
from chaos.workload.discard import DiscardedClients
from chaos.workload.generator import (
    AssignStep,
    CrashStep,
    PollStep,
    SendStep,
    Step,
    SubscribeStep,
    TransactStep,
)
from chaos.workload.journal import Journal, Now
from chaos.workload.outcome import together
from chaos.workload.producer import Dispatch, SendingClient
from chaos.workload.transactor import Transactor

POLL_S: Final = 0.05


def keep_doing(stopping: threading.Event, every_s: float, now_ns: Now, do: Callable[[], None]) -> None:
    """Until `stopping`, once each `every_s`, or as it comes where that takes longer."""
    due_ns = now_ns()
    while not stopping.wait(max(0.0, (due_ns - now_ns()) / 1e9)):
        due_ns = max(due_ns + int(every_s * 1e9), now_ns())
        do()


@dataclass(frozen=True, slots=True)
class Making:
    """How a worker makes its clients."""

    sender: Callable[[], SendingClient]
    reader: Callable[[], ReadingClient]
    member: Callable[[str | None], ReadingClient]
    """A reader that is in the workload's group; given the id of a static member, or None."""


class Worker:
    def __init__(
        self,
        steps: Iterator[Step],
        making: Making,
        *,
        journal: Journal,
        discarded: DiscardedClients,
        transactor: Transactor | None = None,
        reads_uncommitted: bool = False,
    ) -> None:
        """`reads_uncommitted`: its readers show what is open or aborted, too."""
        self.journal = journal
        self.positions: dict[str, int] = {}
        """The next offset, by key, as this worker has seen it."""
        self._steps = steps
        self._making = making
        self._now_ns = journal.now_ns
        self._discarded = discarded
        self._transactor = transactor
        self.reads_uncommitted = reads_uncommitted
        self._static_member = False
        self._reading: AssignStep | SubscribeStep | None = None
        self._sender: SendingClient | None = None
        self._reader: ReadingClient | None = None

    def run(self, stopping: threading.Event, every_s: float) -> None:
        keep_doing(stopping, every_s, self._now_ns, lambda: self.do(next(self._steps)))

    def do(self, step: Step) -> None:
        match step:
            case SendStep(sends):
                self._send(sends)
            case TransactStep():
                self._transact(step)
            case PollStep():
                self.poll(POLL_S)
            case AssignStep():
                self.assign(step)
            case SubscribeStep():
                self._subscribe(step)
            case CrashStep():
                self._crash(step)

    # ---- steps

    def _send(self, sends: Sequence[tuple[str, int]]) -> None:
        start = self._now_ns()
        sender = self._sending()
        dispatch = sender.send(sends)
        sender.wait(dispatch)
        is_known = self._note_send(start, dispatch)
        if not is_known or sender.is_dead:
            self._throw_away()
            self._read_on()

    def _transact(self, step: TransactStep) -> None:
        assert self._transactor is not None
        number = self.journal.process
        self._transactor.do(step)
        if self.journal.process != number and self._reader is not None:
            self._renew_reader(self._reader)

    def _renew_reader(self, old: ReadingClient) -> None:
        self._discarded.take(old.end)
        self._reader = None
        self._read_on()

    def _read_on(self) -> None:
        """With a new client, as the last one did."""
        if isinstance(self._reading, AssignStep):
            self.assign(self._reading)
        elif self._reading is not None:
            self._subscribe(self._reading)

    def poll(self, timeout_s: float, *, final: bool = False) -> None:
        reader = self._reader
        assert reader is not None
        start = self._now_ns()
        messages = reader.poll(timeout_s, self.positions)
        error = reader.take_error()
        outcome: Outcome = "ok" if messages or error is None else "fail"
        self.journal.note(
            "poll", start, outcome, (Poll(messages, altered=reader.take_altered()),), error, final=final,
            rebalanced=reader.take_rebalanced(), uncommitted=self.reads_uncommitted,
        )  # fmt: skip
        reader.note_news(self.journal)
        if reader.is_dead:
            self._renew_reader(reader)

    def assign(self, step: AssignStep, *, final: bool = False) -> None:
        start = self._now_ns()
        if step.from_beginning:
            for key in step.keys:
                self.positions.pop(key, None)
        if self._reader is None or not isinstance(self._reading, AssignStep):
            self._read_with(self._making.reader())
        assert self._reader is not None
        self._reading = AssignStep(step.keys, from_beginning=False)
        self._reader.assign(step.keys, self.positions)
        self.journal.note("assign", start, "ok", final=final, keys=step.keys)

    def _subscribe(self, step: SubscribeStep) -> None:
        start = self._now_ns()
        if self._reader is None or not isinstance(self._reading, SubscribeStep):
            instance_id = f"member-{self.journal.process}" if self._static_member else None
            self._read_with(self._making.member(instance_id))
        assert self._reader is not None
        self._reading = step
        self._reader.subscribe(step.topics)
        self.journal.note(
            "subscribe", start, "ok", keys=step.keys, rebalanced=self._reader.take_rebalanced(),
            group=self._reader.group,
        )  # fmt: skip

    def _crash(self, step: CrashStep) -> None:
        if step.sends:
            start = self._now_ns()
            sender = self._sending()
            dispatch = sender.send(step.sends)
            sender.serve(step.head_start_s)
            sender.purge()
            self._note_send(start, dispatch)
        self.crash()
        self._static_member = step.static_member

    def crash(self, *, final: bool = False) -> None:
        """On purpose. Nobody can know what became of a crash, so this too retires the number."""
        start = self._now_ns()
        self._throw_away()
        self._reading = None
        self.journal.note("crash", start, "info", final=final)
        self.journal.retire()

    def end_of(self, key: str) -> int | None:
        """Where reading of it ends now; None where no broker answers."""
        assert self._reader is not None
        return self._reader.end_of(key)

    # ---- clients

    def _sending(self) -> SendingClient:
        if self._sender is None:
            self._sender = self._making.sender()
        return self._sender

    def _read_with(self, reader: ReadingClient) -> None:
        if self._reader is not None:
            self._discarded.take(self._reader.end)
        self._reader = reader

    def _throw_away(self) -> None:
        for client in (self._sender, self._reader):
            if client is not None:
                self._discarded.take(client.end)
        self._sender = self._reader = None
        if self._transactor is not None:
            self._transactor.drop()

    def close(self) -> None:
        """At the end of all."""
        if self._reader is not None:
            self._discarded.take(self._reader.drop)
            self._reader = None
        self._throw_away()

    # ---- the record

    def _note_send(self, start: int, dispatch: Dispatch) -> bool:
        """Whether its outcome is known; if not, the number is retired."""
        outcome = together(dispatch.outcomes)
        self.journal.note("send", start, outcome, dispatch.ops, dispatch.error)
        if outcome == "info":
            self.journal.retire()
        return outcome != "info"
