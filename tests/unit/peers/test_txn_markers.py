"""Markers to another broker, of this build, of one before, or of Apache Kafka."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.service import TransactionMarker
from kraft.peers.txn_markers import MARKERS_AT_ONCE, BrokerMarkerChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_request, decode_response, encode_request, encode_response
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from metadata_quorum.metadata.metadata_cache import MetadataCache
from tests.support.virtual_loop import run_virtually

TIMEOUT_S = 1.0
T0 = TopicPartition("t", 0)
MARKER = TransactionMarker(ProducerIdAndEpoch(7, 1), 4, True, frozenset({T0}), 2)
ANSWER: Any = {
    "markers": [
        {"producer_id": 7, "topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 0}]}]}
    ]
}


class Broker:
    """Broker 2, which answers WriteTxnMarkers up to a version."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.asked: list[Message] = []

    async def version_of(
        self, broker_id: int, api_key: ApiKey, versions: tuple[int, int], timeout_s: float
    ) -> int:
        return min(versions[1], self.newest)

    async def ask(
        self, broker_id: int, api_key: ApiKey, version: int, fields: Any, timeout_s: float
    ) -> Message:
        assert version <= self.newest
        self.asked.append(decode_request(api_key, version, encode_request(api_key, version, fields)))
        return decode_response(api_key, version, encode_response(api_key, version, ANSWER))


def led_by(broker_id: int) -> MetadataImage:
    partition = PartitionRegistration((2, 3), (2, 3), broker_id, 0, 0)
    topic = TopicImage("t", SimpleNamespace(), {0: partition})  # type: ignore[arg-type]
    return MetadataImage(topics_by_name={"t": topic})


def channel_to(broker: Any, metadata: MetadataCache | None = None) -> BrokerMarkerChannel:
    """Of broker 1, where broker 2 leads everything."""
    metadata = metadata or MetadataCache()
    metadata.image = led_by(2)
    loop, nobody = asyncio.get_running_loop(), SimpleNamespace()
    return BrokerMarkerChannel(1, metadata, nobody, broker, loop, TIMEOUT_S)  # type: ignore[arg-type]


@pytest.mark.parametrize("newest", [1, 2])
def test_a_marker_is_sent_in_a_version_that_its_broker_answers(newest: int) -> None:
    async def test() -> None:
        broker = Broker(newest)
        await channel_to(broker).write(MARKER)
        [request] = broker.asked
        [marker] = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 1, 4)
        assert marker.transaction_version == (2 if newest >= 2 else 0)

    asyncio.run(test())


class Obliging(Broker):
    """Writes every marker."""

    async def ask(
        self, broker_id: int, api_key: ApiKey, version: int, fields: Any, timeout_s: float
    ) -> Message:
        await super().ask(broker_id, api_key, version, fields, timeout_s)
        written = [
            {**ANSWER["markers"][0], "producer_id": marker.producer_id} for marker in self.asked[-1].markers
        ]
        return decode_response(api_key, version, encode_response(api_key, version, {"markers": written}))


class Leader(Broker):
    """Takes markers for late copies, unless they are of before; answers those `at_last`, or not at all."""

    def __init__(self, at_last: list[ErrorCode | None]) -> None:
        super().__init__(2)
        self.at_last = at_last

    async def ask(
        self, broker_id: int, api_key: ApiKey, version: int, fields: Any, timeout_s: float
    ) -> Message:
        self.asked.append(decode_request(api_key, version, encode_request(api_key, version, fields)))
        [marker] = self.asked[-1].markers
        is_late = bool(marker.transaction_version)
        code = ErrorCode.INVALID_PRODUCER_EPOCH if is_late else self.at_last.pop(0)
        if code is None:
            raise OSError("it has gone")
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "error_code": int(code)}]}]
        answer = {"markers": [{"producer_id": 7, "topics": topics}]}
        return decode_response(api_key, version, encode_response(api_key, version, answer))


@pytest.mark.parametrize(
    ("at_last", "versions"),
    [
        ([ErrorCode.NONE], [2, 0]),
        ([ErrorCode.INVALID_PRODUCER_EPOCH], [2, 0]),  # it knows a newer epoch, whatever the version
        ([None, ErrorCode.NONE], [2, 0, 2, 0]),
        ([ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.NONE], [2, 0, 2, 0]),
    ],
)
def test_what_is_refused_as_a_late_copy_is_sent_as_a_marker_of_before(
    at_last: list[ErrorCode | None], versions: list[int]
) -> None:
    """An earlier build prepared transactions of version 2 in their own epoch: they were taken for ended, and
    stayed open forever."""

    async def test() -> None:
        leader = Leader(at_last)
        await channel_to(leader).write(MARKER)
        assert [marker.transaction_version for asked in leader.asked for marker in asked.markers] == versions

    run_virtually(test())


@pytest.mark.row("P7")
def test_very_many_markers_are_sent_in_several_requests() -> None:
    """Each is encoded on the loop, and all that were answered together went on in the same turn of it."""

    async def test() -> None:
        broker = Obliging(2)
        channel = channel_to(broker)
        producers = [ProducerIdAndEpoch(number, 1) for number in range(2 * MARKERS_AT_ONCE + 1)]
        await asyncio.gather(*(channel.write(MARKER._replace(producer=each)) for each in producers))
        assert [len(request.markers) for request in broker.asked] == [MARKERS_AT_ONCE, MARKERS_AT_ONCE, 1]

    asyncio.run(test())


class Silent(Obliging):
    """Broker 2 answers nobody."""

    async def ask(
        self, broker_id: int, api_key: ApiKey, version: int, fields: Any, timeout_s: float
    ) -> Message:
        if broker_id == 2:
            await asyncio.sleep(timeout_s)
            raise TimeoutError
        return await super().ask(broker_id, api_key, version, fields, timeout_s)


def test_what_waits_behind_markers_that_are_not_answered_looks_for_its_leader_anew() -> None:
    """Two hundred after two hundred waited for the silent broker, whoever led by then."""

    async def test() -> None:
        metadata, loop = MetadataCache(), asyncio.get_running_loop()
        channel, began = channel_to(Silent(2), metadata), loop.time()
        producers = [ProducerIdAndEpoch(number, 1) for number in range(3 * MARKERS_AT_ONCE)]
        writing = [asyncio.ensure_future(channel.write(MARKER._replace(producer=each))) for each in producers]
        await asyncio.sleep(TIMEOUT_S / 2)
        metadata.image = led_by(3)
        await asyncio.gather(*writing)
        assert loop.time() - began < 1.5 * TIMEOUT_S

    run_virtually(test())
