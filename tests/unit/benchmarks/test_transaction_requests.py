"""What a transaction makes three nodes do: requests, counted, and no pause between them.

The nodes run in one process and in virtual time (benchmarks/scripted.py), so every run counts the same. One
round trip more, or a client that is sent away to come again, is seen here before a clock could show it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.memory_loop import MemoryLoop
from benchmarks.scripted import NODES, RECORD_BYTES, TOPIC, Cluster
from kraft.net.client import PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode

ID = "script"
FIRST, COUNTED = 3, 8
PARTITIONS = range(NODES)
COORDINATOR_S = 5.0
"""Of virtual time: its topic is made when somebody asks first."""
MOST_FETCHES = 20
"""Of followers, for each transaction: some come by time, and these may fall differently."""


class Transactions:
    """Of one producer, which writes to a partition of each node, as librdkafka does it."""

    def __init__(self, cluster: Cluster, loop: MemoryLoop) -> None:
        self._cluster = cluster
        self._loop = loop
        self._number = 0

    async def begin(self, led: dict[int, list[int]]) -> None:
        addresses = self._cluster.addresses
        clients = [await PeerClient.connect(self._loop, each, "producer") for each in addresses]
        asked = {"key_type": int(CoordinatorType.TRANSACTION), "coordinator_keys": [ID]}
        await clients[0].request(ApiKey.FIND_COORDINATOR, 4, asked)
        await asyncio.sleep(COORDINATOR_S)
        answer = await clients[0].request(ApiKey.FIND_COORDINATOR, 4, asked)
        self._coordinator = clients[answer.coordinators[0].node_id - 1]
        self._leaders = [clients[place] for p in PARTITIONS for place in led if p in led[place]]
        fields = {"transactional_id": ID, "transaction_timeout_ms": 60_000}
        made = await self._coordinator.request(ApiKey.INIT_PRODUCER_ID, 4, fields)
        assert made.error_code == ErrorCode.NONE
        self._id, self._epoch = made.producer_id, made.producer_epoch

    async def run(self, count: int) -> None:
        for _ in range(count):
            await self._add_partitions()
            await asyncio.gather(*map(self._produce, PARTITIONS))
            await self._commit()
            self._number += 1

    async def _add_partitions(self) -> None:
        fields = {
            "v3_and_below_transactional_id": ID,
            "v3_and_below_producer_id": self._id,
            "v3_and_below_producer_epoch": self._epoch,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": list(PARTITIONS)}],
        }
        answer = await self._coordinator.request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, fields)
        (topic,) = answer.results_by_topic_v3_and_below
        assert {each.partition_error_code for each in topic.results_by_partition} == {ErrorCode.NONE}

    async def _produce(self, partition: int) -> None:
        batch = encode_batch(
            [Record(-1, 1_700_000_000_000, None, bytes(RECORD_BYTES))],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._number,
            transactional=True,
        )
        topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
        fields = {"transactional_id": ID, "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}
        answer = await self._leaders[partition].request(ApiKey.PRODUCE, 9, fields)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    async def _commit(self) -> None:
        fields = {
            "transactional_id": ID,
            "producer_id": self._id,
            "producer_epoch": self._epoch,
            "committed": True,
        }
        answer = await self._coordinator.request(ApiKey.END_TXN, 3, fields)
        assert answer.error_code == ErrorCode.NONE


async def what_they_take(directory: Path, loop: MemoryLoop) -> tuple[Counter[str], float]:
    """Requests of all nodes for the counted transactions, and the time that passed meanwhile."""
    cluster = Cluster(loop, directory)
    await cluster.start()
    transactions = Transactions(cluster, loop)
    await transactions.begin(await cluster.create_topic())
    await transactions.run(FIRST)
    before, began = requests(cluster), loop.time()
    await transactions.run(COUNTED)
    taken, passed = requests(cluster) - before, loop.time() - began
    await cluster.stop()
    return taken, passed


def requests(cluster: Cluster) -> Counter[str]:
    """By API, on all nodes."""
    counted: Counter[str] = Counter()
    for node in cluster.nodes:
        counted.update({api.name: api.requests for api in node.context.requests})
    return counted


@pytest.mark.row("P4")
def test_a_transaction_takes_so_many_requests_and_nobody_waits_for_a_timer(tmp_path: Path) -> None:
    loop = MemoryLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        taken, passed = runner.run(what_they_take(tmp_path, loop))
    assert passed == 0.0
    assert taken.pop("Fetch") == taken.pop("FetchFollower") <= MOST_FETCHES * COUNTED
    assert taken == {
        "AddPartitionsToTxn": COUNTED * NODES,  # the client's; both leaders elsewhere verify
        "Produce": COUNTED * NODES,
        "EndTxn": COUNTED,
        "WriteTxnMarkers": COUNTED * (NODES - 1),
    }
