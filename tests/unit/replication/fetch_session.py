"""A consumer's incremental fetch session with a broker of a `Cluster`, and what came of it."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from fetch.messages import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from metadata_quorum.foundation.batch import decode_batch, iter_headers
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster

OF_PARAMS: Final = {"preferred_replica_of", "room"}
"""Not of the request, but of how it is served."""


def want(topic_id: UUID, number: int = 0, offset: int = 0, **fields: int) -> FetchPartition:
    return FetchPartition(topic_id, "", number, offset, fields.pop("max_bytes", 1 << 20), **fields)


def records_of(part: FetchedPartition) -> list[bytes | None]:
    if part.slice is None:
        return []
    data = part.slice.read(MAY_BLOCK)
    return [r.value for position, _ in iter_headers(data) for r in decode_batch(data, position)]


def got(response: FetchResponse) -> dict[int, list[bytes | None]]:
    assert response.error == ErrorCode.NONE
    return {part.partition: records_of(part) for part in response.partitions}


class Consumer:
    """Keeps an incremental session, naming what its test names."""

    def __init__(self, cluster: Cluster, broker_id: int = 1, **defaults: Any) -> None:
        self.cluster, self.broker_id, self.defaults = cluster, broker_id, {"max_wait_ms": 0, **defaults}
        self.session_id, self.epoch = 0, 0

    async def fetch(self, *wanted: FetchPartition, forgotten: tuple = (), **fields: Any) -> FetchResponse:
        fields = {**self.defaults, **fields}
        served = {name: fields.pop(name) for name in OF_PARAMS & fields.keys()}
        request = FetchRequest(
            list(wanted),
            list(forgotten),
            session_id=self.session_id,
            session_epoch=self.epoch,
            **fields,
        )
        response = await self.cluster.fetch(self.broker_id, request, **served)
        self.session_id = response.session_id or self.session_id
        self.epoch += 1
        return response
