"""Markers to another broker, of this build, of one before, or of Apache Kafka."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.service import TransactionMarker
from kraft.peers.txn_markers import BrokerMarkerChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_request, decode_response, encode_request, encode_response
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from metadata_quorum.metadata.metadata_cache import MetadataCache

T0 = TopicPartition("t", 0)
MARKER = TransactionMarker(ProducerIdAndEpoch(7, 1), 4, True, frozenset({T0}), 2)
ANSWER = {
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


@pytest.mark.parametrize("newest", [1, 2])
def test_a_marker_is_sent_in_a_version_that_its_broker_answers(newest: int) -> None:
    async def test() -> None:
        partition = PartitionRegistration((2,), (2,), 2, 0, 0)
        topic = TopicImage("t", SimpleNamespace(), {0: partition})  # type: ignore[arg-type]
        metadata = MetadataCache()
        metadata.image = MetadataImage(topics_by_name={"t": topic})
        broker: Any = Broker(newest)
        loop, nobody = asyncio.get_running_loop(), SimpleNamespace()
        channel = BrokerMarkerChannel(1, metadata, nobody, broker, loop, 1.0)  # type: ignore[arg-type]
        await channel.write(MARKER)
        [request] = broker.asked
        [marker] = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 1, 4)
        assert marker.transaction_version == (2 if newest >= 2 else 0)

    asyncio.run(test())
