"""Transactions at their coordinator: requests of producers, markers to partition leaders, failovers.

A producer is what a client is: it remembers the id and epoch of the last response. Commands of the scenarios
in transactions/*.txt:

    producer NAME TXN-ID [VERSION]     a client that speaks this transaction.version (default 2: KIP-890)
    init NAME [TIMEOUT-MS]             InitProducerId of a new incarnation
    recover NAME                       InitProducerId with the id and epoch it has (KIP-360)
    add NAME TOPIC-P…                  AddPartitionsToTxn
    verify NAME TOPIC-P…               as a partition leader does before it appends a first batch
    commit NAME | abort NAME           EndTxn; `commit NAME lost`: the producer does not get the response
    last-epoch NAME                    it goes on with the last epoch of its producer id
    leaders down TOPIC-P… | leaders up TOPIC-P…     whether markers can be written there
    replication off | on               of __transaction_state: a response waits for it
    advance SECONDS                    timeouts are checked every 10 seconds
    failover                           another broker coordinates; what was not replicated is lost
    state TXN-ID | log                 log: every record of __transaction_state
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import (
    TransactionMetadata,
    TransactionRecord,
    decode,
    encode,
)
from data_plane.coordinator.transactions.service import (
    TransactionCoordinator,
    TransactionCoordinatorConfig,
    TransactionMarker,
)
from data_plane.coordinator.transactions.transaction_state_manager import LAST_EPOCH
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import TopicPartition
from tests.golden.scenario_runner import run_scenario, scenarios
from tests.support.virtual_loop import VirtualLoop
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.transactions.transaction_driver import EPOCH_MS, TIMEOUT_MS

CONFIG = TransactionCoordinatorConfig(partitions=1)
PARTITION = 0
ROUNDS_TO_SETTLE = 50


@pytest.mark.row("P4")
@pytest.mark.parametrize("path", scenarios("transactions"))
def test_transactions_behave_as_written(path: Path) -> None:
    scenario = Scenario()
    try:
        run_scenario(path, scenario)
    finally:
        scenario.close()


class Leaders:
    """Partition leaders: a `MarkerChannel` that notes each marker as it is written."""

    def __init__(self) -> None:
        self.down: set[TopicPartition] = set()
        self.came_up = asyncio.Event()
        self.notes: list[str] = []

    async def write(self, marker: TransactionMarker) -> None:
        left = set(marker.partitions)
        kind = "COMMIT" if marker.commit else "ABORT"
        while left:
            self.came_up.clear()
            for tp in sorted(left - self.down):
                self.notes.append(
                    f"  {tp}: {kind} {_text(marker.producer)}, coordinator epoch {marker.coordinator_epoch}"
                )
            left &= self.down
            if left:
                await self.came_up.wait()


@dataclass
class Producer:
    transactional_id: str
    version: int
    identity: ProducerIdAndEpoch | None = None

    @property
    def known(self) -> ProducerIdAndEpoch:
        assert self.identity is not None, "not initialized"
        return self.identity


class Scenario:
    """One partition of `__transaction_state`, its coordinator of now, and the clients."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.log = MemoryLog()
        self.leaders = Leaders()
        self.producers: dict[str, Producer] = {}
        self.ids = count(1000)
        self.epoch = 0
        self.started = self.loop.time()
        self.waiting: list[tuple[str, asyncio.Future[str]]] = []
        self.coordinator = self._elect()

    def close(self) -> None:
        self.coordinator.close()
        self._settle()
        self.loop.close()

    # --- producers

    def do_producer(self, name: str, transactional_id: str, version: str = "2") -> None:
        self.producers[name] = Producer(transactional_id, int(version))

    def do_init(self, name: str, timeout_ms: str = str(TIMEOUT_MS)) -> list[str]:
        return self._init(name, None, int(timeout_ms))

    def do_recover(self, name: str) -> list[str]:
        return self._init(name, self.producers[name].known, TIMEOUT_MS)

    def _init(self, name: str, expected: ProducerIdAndEpoch | None, timeout_ms: int) -> list[str]:
        producer = self.producers[name]

        async def request() -> str:
            producer.identity = await self.coordinator.init_producer_id(
                producer.transactional_id, timeout_ms, expected
            )
            return f"is {_text(producer.known)}"

        return self._ask(name, request())

    def do_add(self, name: str, *partitions: str) -> list[str]:
        producer = self.producers[name]

        async def request() -> str:
            tps = [_partition(text) for text in partitions]
            await self.coordinator.add_partitions(
                producer.transactional_id, producer.known, tps, producer.version
            )
            return "added"

        return self._ask(name, request())

    def do_verify(self, name: str, *partitions: str) -> list[str]:
        producer = self.producers[name]

        async def request() -> str:
            tps = [_partition(text) for text in partitions]
            missing = await self.coordinator.verify(producer.transactional_id, producer.known, tps)
            return f"not in its transaction: {' '.join(map(str, missing))}" if missing else "verified"

        return self._ask(name, request())

    def do_commit(self, name: str, fate: str = "") -> list[str]:
        return self._end(name, commit=True, lost=fate == "lost")

    def do_abort(self, name: str, fate: str = "") -> list[str]:
        return self._end(name, commit=False, lost=fate == "lost")

    def _end(self, name: str, *, commit: bool, lost: bool) -> list[str]:
        producer = self.producers[name]

        async def request() -> str:
            following = await self.coordinator.end(
                producer.transactional_id, producer.known, commit=commit, client_version=producer.version
            )
            if lost:
                return "the response is lost"
            producer.identity = following
            return f"{'committed' if commit else 'aborted'}, is {_text(following)}"

        return self._ask(name, request())

    def do_last_epoch(self, name: str) -> list[str]:
        producer = self.producers[name]
        producer.identity = ProducerIdAndEpoch(producer.known.producer_id, LAST_EPOCH)
        stored = TransactionMetadata(*producer.identity, TIMEOUT_MS, updated_ms=EPOCH_MS)
        key, value = encode(TransactionRecord(producer.transactional_id, stored))
        batch = bytearray(encode_batch([Record(-1, EPOCH_MS, key, value)]))
        self.log.append(PARTITION, self.epoch, batch)
        return self.do_failover()

    # --- the cluster

    def do_leaders(self, state: str, *partitions: str) -> list[str]:
        tps = {_partition(text) for text in partitions}
        self.leaders.down = self.leaders.down | tps if state == "down" else self.leaders.down - tps
        self.leaders.came_up.set()
        return self._happened()

    def do_replication(self, state: str) -> list[str]:
        self.log.replicating = state == "on"
        if self.log.replicating:
            self.log.replicate(PARTITION)
        return self._happened()

    def do_advance(self, seconds: str) -> list[str]:
        self.loop.run_until_complete(asyncio.sleep(float(seconds)))
        return self._happened()

    def do_failover(self) -> list[str]:
        self.coordinator.close()
        happened = self._happened()
        self.log.truncate_unreplicated(PARTITION)
        self.log.replicating = True
        self.coordinator = self._elect()
        return [*happened, *self._happened()]

    def _elect(self) -> TransactionCoordinator:
        self.epoch += 1

        async def next_id() -> int:
            return next(self.ids)

        coordinator = TransactionCoordinator(CONFIG, self.log, self.leaders, next_id, self.loop, self._now_ms)
        coordinator.become_leader(PARTITION, self.epoch)
        self.loop.run_until_complete(coordinator.loaded())
        return coordinator

    def _now_ms(self) -> int:
        return EPOCH_MS + round((self.loop.time() - self.started) * 1000)

    # --- looking

    def do_state(self, transactional_id: str) -> list[str]:
        return self._ask(transactional_id, self._describe(transactional_id))

    async def _describe(self, transactional_id: str) -> str:
        return _shown(await self.coordinator.describe(transactional_id))

    def do_log(self) -> Iterator[str]:
        for record in self.log.records(PARTITION):
            assert record.key is not None
            decoded = decode(record.key, record.value)
            assert decoded is not None
            name, value = decoded
            yield f"{name}: {'tombstone' if value is None else _shown(value)}"

    # --- responses

    def _ask(self, name: str, request: Awaitable[str]) -> list[str]:
        response = asyncio.ensure_future(request, loop=self.loop)
        self.waiting.append((name, response))
        happened = self._happened()
        return happened if response.done() else [*happened, f"{name}: waits"]

    def _happened(self) -> list[str]:
        """Responses that have come, then the markers that were written."""
        self._settle()
        lines = [f"{name}: {_outcome(response)}" for name, response in self.waiting if response.done()]
        self.waiting = [(name, response) for name, response in self.waiting if not response.done()]
        lines += self.leaders.notes
        self.leaders.notes = []
        return lines

    def _settle(self) -> None:
        async def rounds() -> None:
            for _ in range(ROUNDS_TO_SETTLE):
                await asyncio.sleep(0)

        self.loop.run_until_complete(rounds())


def _outcome(response: asyncio.Future[str]) -> str:
    error = response.exception()
    if error is None:
        return response.result()
    assert isinstance(error, BrokerError), error
    return error.code.name


def _shown(transaction: TransactionMetadata) -> str:
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    partitions = "".join(f" {tp}" for tp in sorted(transaction.partitions))
    return f"{transaction.state.label} {_text(producer)}{partitions}"


def _text(producer: ProducerIdAndEpoch) -> str:
    return f"{producer.producer_id}/{producer.epoch}"


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))
