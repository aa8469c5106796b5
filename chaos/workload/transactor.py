"""One transactional id: its current producer, the operations on it, and zombies.

A zombie is a producer that continues although another has taken its id over. Here both are in one thread: the
first has an open transaction, the second takes over, then the first continues to write and requests its
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from chaos.history import HistoryTransaction, MicroOperation, Outcome, Poll
from chaos.workload.discard import DiscardedClients
from chaos.workload.generator import Ending, TransactStep
from chaos.workload.journal import Journal
from chaos.workload.transactional import Consumed, TransactionalClient


class Transactor:
    def __init__(
        self,
        transactional_id: str,
        make: Callable[[], TransactionalClient],
        journal: Journal,
        discarded: DiscardedClients,
    ) -> None:
        self.id = transactional_id
        self._make = make
        self._journal = journal
        self._discarded = discarded
        self._client: TransactionalClient | None = None

    def do(self, step: TransactStep) -> None:
        """One transaction from its beginning to its end."""
        client = self.ready()
        start = self._journal.now_ns()
        if client is None or not self.begin(client):
            return
        client.send(step.sends)
        process = self._journal.process
        outcome = self.end(client, step.ending, step.late)
        self.note(client, start, outcome, process)

    def ready(self) -> TransactionalClient | None:
        """The current producer; None where no coordinator admits one now."""
        if self._client is None:
            self._take_over()
        return self._client

    def begin(self, client: TransactionalClient) -> bool:
        """Whether it has an open transaction now; else it is thrown away."""
        if client.begin():
            return True
        self.drop(client)
        return False

    def end(
        self,
        client: TransactionalClient,
        ending: Ending,
        late: Sequence[tuple[str, int]] = (),
        consumed: Consumed | None = None,
    ) -> Outcome:
        match ending:
            case "commit":
                return client.commit(consumed)
            case "abort":
                return client.abort()
            case "crash":
                client.is_dead = True
                return "fail"
            case "zombie":
                self._journal.retire()
                self._take_over()
                client.send(late)
                client.is_dead = True
                return client.commit(consumed)

    def note(
        self,
        client: TransactionalClient,
        start: int,
        outcome: Outcome,
        process: int,
        *,
        group: str | None = None,
        consumed: Mapping[str, tuple[int, int]] | None = None,
        polled: Sequence[Poll] = (),
        rebalanced: Sequence[str] = (),
    ) -> None:
        """Record the outcome; drop a producer that has failed."""
        txn = HistoryTransaction(self.id, group, consumed or {}, client.commit_asked)
        ops: list[MicroOperation] = [*polled, *client.ops]
        self._journal.note(
            "txn", start, outcome, ops, client.error, process=process, rebalanced=rebalanced, txn=txn
        )
        if outcome == "info" and process == self._journal.process:
            self._journal.retire()
        if client.is_dead:
            self.drop(client)

    def drop(self, client: TransactionalClient | None = None) -> None:
        """Drop it, or the current one."""
        client = client or self._client
        if client is not None:
            self._discarded.take(client.end)
        if client is self._client:
            self._client = None

    def _take_over(self) -> None:
        """With a new producer."""
        start = self._journal.now_ns()
        client = self._make()
        is_ready = client.init()
        self._journal.note(
            "init", start, "ok" if is_ready else "info", error=client.error, txn=HistoryTransaction(self.id)
        )
        self._client = client if is_ready else None
        if not is_ready:
            self._journal.retire()
            self._discarded.take(client.end)
