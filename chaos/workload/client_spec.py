"""What each client of a workload does: a client for each bootstrap, made from the topics and the seed.

Kinds of topics are assigned round-robin. A client writes the topics of its kind, and reads all; one that
copies reads only its source. Where anything is written in transactions, the last reader reads uncommitted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from chaos.workload.consumer import Isolation, ReadingClient
from chaos.workload.copier import Copier
from chaos.workload.discard import DiscardedClients
from chaos.workload.generator import Mix, Values, copy_steps, steps
from chaos.workload.journal import Journal, Now, Record
from chaos.workload.producer import CLIENT_SETTINGS, SendingClient
from chaos.workload.topics import TopicSpec, Writing
from chaos.workload.transactional import TransactionalClient
from chaos.workload.transactor import Transactor
from chaos.workload.worker import Making, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSpec:
    """What all clients have in common."""

    topics: Sequence[TopicSpec]
    group: str
    """Of those that subscribe; copiers have one of their own, and transactional ids begin so too."""
    seed: int
    mix: Mix
    delivery_timeout_s: float
    transaction_timeout_s: float
    now_ns: Now
    record: Record
    discarded: DiscardedClients

    @property
    def copiers_group(self) -> str:
        return f"{self.group}-copies"

    def written_by(self, kind: Writing) -> list[str]:
        return [key for each in self.topics if each.writing == kind for key in each.keys]


@dataclass(slots=True)
class WorkloadClients:
    workers: list[Worker] = field(default_factory=list)
    copiers: list[Copier] = field(default_factory=list)
    transactional_ids: list[str] = field(default_factory=list)

    @property
    def final_readers(self) -> list[Worker]:
        """Clients that only read, and only committed records."""
        return [worker for worker in self.workers if not worker.reads_uncommitted]


@dataclass(frozen=True, slots=True)
class _ClientNumber:
    number: int
    bootstrap: str
    kind: Writing
    rng: random.Random
    values: Values
    journal: Journal


def make_clients(spec: ClientSpec, bootstraps: Sequence[str]) -> WorkloadClients:
    """Raises ValueError."""
    kinds = list(dict.fromkeys(each.writing for each in spec.topics))
    if len(bootstraps) < len(kinds):
        raise ValueError(f"{len(kinds)} kinds of producers need as many clients, not {len(bootstraps)}")
    kind_of = [kinds[number % len(kinds)] for number in range(len(bootstraps))]
    readers = [number for number, kind in enumerate(kind_of) if kind.copy_of is None]
    clients = WorkloadClients()
    for number, (bootstrap, kind) in enumerate(zip(bootstraps, kind_of, strict=True)):
        client = _ClientNumber(
            number, bootstrap, kind,
            random.Random(f"{spec.seed}/{number}"), Values(number, len(bootstraps)),
            Journal(number, len(bootstraps), spec.now_ns, spec.record),
        )  # fmt: skip
        transactor = _transactor(spec, client) if kind.transactional else None
        if transactor is not None:
            clients.transactional_ids.append(transactor.id)
        if transactor is not None and kind.copy_of is not None:
            clients.copiers.append(_copier(spec, client, transactor, kind.copy_of))
            continue
        is_dirty = any(each.transactional for each in kinds) and number == readers[-1] != readers[0]
        isolation: Isolation = "read_uncommitted" if is_dirty else "read_committed"
        clients.workers.append(_worker(spec, client, transactor, isolation))
    return clients


def _worker(
    spec: ClientSpec, client: _ClientNumber, transactor: Transactor | None, isolation: Isolation
) -> Worker:
    bootstrap, kind = client.bootstrap, client.kind
    making = Making(
        lambda: SendingClient(bootstrap, kind, spec.delivery_timeout_s, spec.now_ns),
        lambda: ReadingClient(bootstrap, isolation=isolation),
        lambda instance_id: ReadingClient(bootstrap, spec.group, instance_id, isolation=isolation),
    )
    read = [key for each in spec.topics for key in each.keys]
    return Worker(
        steps(
            client.rng, spec.mix, client.values, spec.written_by(kind), read,
            transactional=transactor is not None,
        ),
        making,
        journal=client.journal,
        discarded=spec.discarded,
        transactor=transactor,
        reads_uncommitted=isolation == "read_uncommitted",
    )  # fmt: skip


def _copier(spec: ClientSpec, client: _ClientNumber, transactor: Transactor, source: str) -> Copier:
    return Copier(
        copy_steps(client.rng, spec.mix.endings),
        next(topic for topic in spec.topics if topic.name == source),
        spec.written_by(client.kind),
        client.values,
        spec.copiers_group,
        transactor=transactor,
        member=lambda: ReadingClient(client.bootstrap, spec.copiers_group, commits=False),
        journal=client.journal,
        discarded=spec.discarded,
    )


def _transactor(spec: ClientSpec, client: _ClientNumber) -> Transactor:
    name = f"{spec.group}-{client.number}"
    timeout_ms = int(spec.transaction_timeout_s * 1000)
    settings = {
        "transactional.id": name,
        "transaction.timeout.ms": timeout_ms,
        "socket.timeout.ms": min(timeout_ms, CLIENT_SETTINGS["socket.timeout.ms"]),  # else it is refused
    }
    delivery_s = min(spec.delivery_timeout_s, spec.transaction_timeout_s)

    def make() -> TransactionalClient:
        sender = SendingClient(client.bootstrap, client.kind, delivery_s, spec.now_ns, settings)
        return TransactionalClient(sender, spec.now_ns)

    return Transactor(name, make, client.journal, spec.discarded)
