"""A worker that consumes, transforms and produces: every input once, in a transaction with its offset.

It is a member of a group of its own kind. What is aborted is read again; after a crash, or a commit without a
response, the next incarnation continues at the group's committed offsets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Final

from chaos.history import Outcome, Poll
from chaos.workload.consumer import ReadingClient
from chaos.workload.discard import DiscardedClients
from chaos.workload.generator import CopyStep, Ending, Values
from chaos.workload.journal import Journal
from chaos.workload.topics import TopicSpec
from chaos.workload.transactional import Consumed
from chaos.workload.transactor import Transactor
from chaos.workload.worker import POLL_S, keep_doing

MOST_INPUTS: Final = 20
"""Of one transaction."""
ASK_AGAIN_NS: Final = 10**9


class Copier:
    def __init__(
        self,
        steps: Iterator[CopyStep],
        source: TopicSpec,
        written: Sequence[str],
        values: Values,
        group: str,
        *,
        transactor: Transactor,
        member: Callable[[], ReadingClient],
        journal: Journal,
        discarded: DiscardedClients,
    ) -> None:
        self.source = source
        self.positions: dict[str, int] = {}
        """Up to where the input is in committed transactions, or ends, as far as this member knows."""
        self._steps = steps
        self._next_key = cycle(written)
        self._values = values
        self._group = group
        self._transactor = transactor
        self._member = member
        self._journal = journal
        self._discarded = discarded
        self._reader: ReadingClient | None = None

    def run(self, stopping: threading.Event, every_s: float) -> None:
        keep_doing(stopping, every_s, self._journal.now_ns, lambda: self.copy(next(self._steps).ending))

    def copy(self, ending: Ending) -> None:
        """One transaction with what is there to be copied; none where nothing is."""
        reader, client = self._reading(), self._transactor.ready()
        if client is None:
            return
        reader.note_news(self._journal)
        start = self._journal.now_ns()
        polled = reader.poll(POLL_S, self.positions, MOST_INPUTS)
        poll = Poll(polled, self._journal.now_ns(), reader.take_altered())
        rebalanced = reader.take_rebalanced()
        if not polled:
            outcome: Outcome = "ok" if (error := reader.take_error()) is None else "fail"
            self._journal.note("poll", start, outcome, (Poll({}),), error, rebalanced=rebalanced)
            if reader.is_dead:
                self._end_reader()
            return
        if not self._transactor.begin(client):
            self._end_reader()
            return
        client.send([self._output() for pairs in polled.values() for _ in pairs])
        consumed = {key: (pairs[0][0], pairs[-1][0] + 1) for key, pairs in polled.items()}
        upto = Consumed({key: end for key, (_, end) in consumed.items()}, reader.group_metadata())
        process = self._journal.process
        outcome = self._transactor.end(client, ending, consumed=upto)
        self._transactor.note(
            client, start, outcome, process,
            group=self._group, consumed=consumed, polled=(poll,), rebalanced=rebalanced,
        )  # fmt: skip
        if outcome == "info" or ending in ("crash", "zombie"):
            self._end_reader()
        elif outcome == "fail":
            self._rewind(reader, {key: first for key, (first, _) in consumed.items()})

    def ends(self) -> dict[str, int]:
        """Where the input ends, as far as brokers answer."""
        reader = self._reading()
        return {key: end for key in self.source.keys if (end := reader.end_of(key)) is not None}

    def close(self) -> None:
        if self._reader is not None:
            self._discarded.take(self._reader.drop)
            self._reader = None
        self._transactor.drop()

    def _output(self) -> tuple[str, int]:
        return next(self._next_key), self._values.take()

    def _reading(self) -> ReadingClient:
        if self._reader is None:
            start = self._journal.now_ns()
            self._reader = self._member()
            self._reader.subscribe([self.source.name])
            self._journal.note("subscribe", start, "ok", keys=self.source.keys, group=self._group)
        return self._reader

    def _rewind(self, reader: ReadingClient, positions: Mapping[str, int]) -> None:
        """What was aborted is to be read again."""
        if reader.seek(positions):
            self.positions.update(positions)
        else:
            self._end_reader()

    def _end_reader(self) -> None:
        if self._reader is not None:
            self._discarded.take(self._reader.end)
            self._reader = None
        self.positions.clear()


def copy_the_rest(
    copiers: Sequence[Copier], mine: Copier, deadline_ns: int, now_ns: Callable[[], int]
) -> None:
    """In a quiet cluster, until the group has copied everything; each of them does this on its own thread."""
    while now_ns() < deadline_ns:
        ends = mine.ends()
        together = {key: max(each.positions.get(key, 0) for each in copiers) for key in mine.source.keys}
        if len(ends) == len(together) and all(together[key] >= end for key, end in ends.items()):
            return
        again_ns = now_ns() + ASK_AGAIN_NS
        while now_ns() < again_ns:
            mine.copy("commit")
