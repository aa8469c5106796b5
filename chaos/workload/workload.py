"""All clients of a run: started together, stopped together, and the final phase.

    with Workload(bootstraps, topics, seed=7, now_ns=now, record=writer.append) as workload:
        ...                      # break things; read workload.statistics; heal
        workload.stop()
        final = workload.final_phase(60)

Every client writes in one mode and reads all topics (client_spec.py); two members of a group of their own
commit when they have been replaced (late_members.py). The bootstrap addresses may be of any Kafka cluster, or
of a client's own proxies.
"""

from __future__ import annotations

import threading
from collections import ChainMap
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

from chaos.history import Operation
from chaos.workload.client_spec import ClientSpec, make_clients
from chaos.workload.copier import Copier, copy_the_rest
from chaos.workload.discard import DiscardedClients
from chaos.workload.final import bounds_of, read_all
from chaos.workload.generator import Mix
from chaos.workload.journal import Journal, Now, Record
from chaos.workload.late_members import LateMembers
from chaos.workload.producer import GRACE_S
from chaos.workload.settle import SETTLE_S, ask_committed, settle
from chaos.workload.statistics import Statistics
from chaos.workload.topics import TopicSpec
from chaos.workload.transactional import PATIENCE_S
from chaos.workload.worker import Worker

Result = TypeVar("Result")

STOP_MARGIN_S: Final = 15.0
"""Beyond the delivery timeout: for a machine that is busy."""
CALLS_OF_A_TRANSACTION: Final = 5
"""Calls that may each time out: init, begin, offsets, commit, abort."""
END_PATIENCE_S: Final = 15.0
LATE_PROCESSES: Final = 1_000_000
"""Beyond the numbers that clients retire."""


@dataclass(frozen=True, slots=True)
class Pace:
    operations_per_s: float = 300.0
    """Of all clients together; fewer where operations take longer."""
    delivery_timeout_s: float = 12.0
    """After so long a send without a response times out, and its outcome is unknown."""
    transaction_timeout_s: float = 10.0
    """A transaction that is open for longer is aborted by its coordinator."""


STOCK_MIX: Final = Mix()
STOCK_PACE: Final = Pace()


class FinalReadResult(NamedTuple):
    """The result of the final phase: keys that some reader did not read to their end, and how far it came."""

    missing: dict[str, int]
    took_s: float


class Workload:
    def __init__(
        self,
        bootstraps: Sequence[str],
        topics: Iterable[TopicSpec],
        *,
        seed: int,
        now_ns: Now,
        record: Record,
        mix: Mix = STOCK_MIX,
        pace: Pace = STOCK_PACE,
    ) -> None:
        """A client per bootstrap; the topics exist. `now_ns` counts from the start of the run."""
        self.statistics = Statistics()
        self._topics = tuple(topics)
        self._now_ns = now_ns
        self._pace = pace
        self._record = record
        self._discarded = DiscardedClients()
        self._stopping = threading.Event()
        self._running: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(len(bootstraps) + 1, "client")
        spec = ClientSpec(
            topics=self._topics, group=f"chaos-{seed}", seed=seed, mix=mix,
            delivery_timeout_s=pace.delivery_timeout_s,
            transaction_timeout_s=pace.transaction_timeout_s,
            now_ns=now_ns, record=self._note, discarded=self._discarded,
        )  # fmt: skip
        clients = make_clients(spec, bootstraps)
        self._bootstrap = bootstraps[0]
        self._clients: list[Worker | Copier] = [*clients.workers, *clients.copiers]
        self._copiers = clients.copiers
        self._final_readers = clients.final_readers
        count = len(bootstraps)
        self._late = LateMembers(
            bootstraps[0], f"{spec.group}-late", self._topics[0].keys[0],
            [Journal(LATE_PROCESSES * count + number, count, now_ns, self._note) for number in range(2)],
        )  # fmt: skip
        self.group = spec.group
        """Of all clients that subscribe."""
        self.copiers_group = spec.copiers_group
        self.transactional_ids = tuple(clients.transactional_ids)

    def _note(self, operation: Operation) -> None:
        self._record(operation)
        self.statistics.note(operation)

    def start(self) -> None:
        every_s = len(self._clients) / self._pace.operations_per_s
        self._running = [self._pool.submit(each.run, self._stopping, every_s) for each in self._clients]
        self._running.append(self._pool.submit(self._late.run, self._stopping))

    def raise_error(self) -> None:
        """What ended a client before its time."""
        for running in self._running:
            if running.done():
                running.result()

    def stop(self) -> None:
        """Let every client finish its step. Raises the error that ended a client early, and `TimeoutError`
        where one does not end."""
        self._stopping.set()
        calls_s = CALLS_OF_A_TRANSACTION * PATIENCE_S if self.transactional_ids else 0.0
        _results(self._running, self._pace.delivery_timeout_s + GRACE_S + calls_s + STOP_MARGIN_S)

    def final_phase(self, patience_s: float = 60.0, readers: int = 2) -> FinalReadResult:
        """After `stop`: what is left is copied, open transactions end, and everything is read from the
        beginning, by so many of the clients."""
        self._finish_transactions(patience_s)
        self._ask_committed(patience_s)
        start_ns = self._now_ns()
        deadline_ns = start_ns + int(patience_s * 1e9)
        bounds = bounds_of(self._topics, self.statistics)
        reading = [
            self._pool.submit(read_all, each, bounds, deadline_ns, self._now_ns)
            for each in self._final_readers[:readers]
        ]
        missing = ChainMap(*_results(reading, patience_s + STOP_MARGIN_S))
        return FinalReadResult(dict(missing), (self._now_ns() - start_ns) / 1e9)

    def close(self) -> None:
        """Throw the clients away."""
        self._stopping.set()
        for client in self._clients:
            client.close()
        self._pool.shutdown(wait=False)
        self._discarded.wait(END_PATIENCE_S)

    def __enter__(self) -> Workload:
        try:
            self.start()
        except BaseException:  # Ctrl-C: else those that run would keep the process from its end
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _finish_transactions(self, patience_s: float) -> None:
        keys = [key for each in self._topics if each.transactional for key in each.keys]
        if not keys:
            return
        journal = self._final_readers[0].journal
        settle_s = self._pace.transaction_timeout_s + SETTLE_S
        if self._copiers:
            settle(self._bootstrap, keys, journal, settle_s)
            deadline_ns = self._now_ns() + int(patience_s * 1e9)
            copying = [
                self._pool.submit(copy_the_rest, self._copiers, each, deadline_ns, self._now_ns)
                for each in self._copiers
            ]
            _results(copying, patience_s + CALLS_OF_A_TRANSACTION * PATIENCE_S + STOP_MARGIN_S)
        settle(self._bootstrap, keys, journal, settle_s)

    def _ask_committed(self, patience_s: float) -> None:
        journal = self._final_readers[0].journal
        every_key = [key for each in self._topics for key in each.keys]
        for group in (self.group, self._late.group):
            ask_committed(self._bootstrap, group, every_key, journal, patience_s)
        sources = {copier.source.name: copier.source.keys for copier in self._copiers}
        if sources:
            keys = [key for each in sources.values() for key in each]
            ask_committed(self._bootstrap, self.copiers_group, keys, journal, patience_s)


def _results(futures: Sequence[Future[Result]], patience_s: float) -> list[Result]:
    """Of all, or the first error."""
    done, left = wait(futures, patience_s)
    results = [future.result() for future in futures if future in done]
    if left:
        raise TimeoutError(f"{len(left)} clients are not done after {patience_s:g} s")
    return results
