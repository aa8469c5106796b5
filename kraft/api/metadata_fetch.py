"""Fetch and FetchSnapshot of `__cluster_metadata`, on the controllers' listener.

Brokers without a controller of their own follow the metadata this way. Everything in this log is committed,
so every controller may answer, not only the active one; but one that is behind its reader refuses: told an
end of the log, or a high watermark, below its own, a broker of Apache Kafka stops. A fetch at the end of the
log waits for the next commit. Limits of a partition do not count: Kafka's Raft clients leave them at 0.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from fetch.messages import FetchPartition, FetchRequest
from kraft.api.authz.checks import CLUSTER_ACTION
from kraft.api.authz.raw_requests import is_cluster_action_authorized
from kraft.api.context import ControllerContext
from kraft.api.metadata_reader import MetadataReader
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import each_within, in_slices
from kraft.net.connection import Buffers
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, encode_response
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID, NO_EPOCH
from metadata_quorum.foundation.supervision import settle
from metadata_quorum.metadata.metadata_log import SnapshotId

MAX_BYTES: Final = 8 * 1024 * 1024
"""The limit on one response, as in Kafka's raft."""
NAMED_PER_SLICE: Final = 1000
"""FetchSnapshot."""

_FETCH_WITH_ENDPOINTS: Final = 16
_FETCH_SNAPSHOT_WITH_ENDPOINTS: Final = 1


def handle(
    controller: ControllerContext, ctx: RequestContext, request: FetchRequest
) -> Buffers | asyncio.Future[Buffers]:
    if not is_cluster_action_authorized(controller.node, ctx):
        return _refused(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not _is_of_cluster(controller, request.cluster_id):
        return _refused_whole(ctx, ErrorCode.INCONSISTENT_CLUSTER_ID)
    reader = controller.metadata_reader
    wanted = request.partitions[0] if len(request.partitions) == 1 else None
    if wanted is None or not _is_metadata(wanted):
        return _refused_whole(ctx, ErrorCode.INVALID_REQUEST)
    if wanted.fetch_offset < 0:
        return _refused(ctx, request, ErrorCode.INVALID_REQUEST)
    reader.note(request.replica_id, wanted.fetch_offset)
    answer = _read(controller, reader, wanted, request.max_bytes)
    if request.max_wait_ms <= 0 or answer["records"] or answer["error_code"] or "diverging_epoch" in answer:
        return _framed(controller, ctx, answer)
    later: asyncio.Future[Buffers] = controller.node.loop.create_future()

    def look_again(done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            settle(
                later, lambda: _framed(controller, ctx, _read(controller, reader, wanted, request.max_bytes))
            )

    more = reader.more(request.max_wait_ms / 1000)
    more.add_done_callback(look_again)
    ctx.connection.park(later, more.cancel)
    return later


def _is_of_cluster(controller: ControllerContext, cluster_id: str | None) -> bool:
    """Who names no cluster is asked no further."""
    return cluster_id is None or cluster_id == controller.node.cluster_id


def _is_metadata(wanted: FetchPartition) -> bool:
    return wanted.partition == 0 and (wanted.topic_id == METADATA_TOPIC_ID or wanted.topic == METADATA_TOPIC)


def _read(
    controller: ControllerContext, reader: MetadataReader, wanted: FetchPartition, max_bytes: int
) -> dict[str, Any]:
    log = reader.log
    answer: dict[str, Any] = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": log.end_offset,
        "last_stable_offset": log.end_offset,
        "log_start_offset": log.start_offset,
        "current_leader": _current_leader(controller),
        "aborted_transactions": None,
        "records": b"",
    }
    offset = wanted.fetch_offset
    if offset > log.end_offset and controller.quorum_controller.epoch != controller.raft.term:
        # Nobody has lost anything: this one has not applied everything yet, above all after its start; or it
        # was active until it heard of a later term.
        return {
            **answer,
            "error_code": int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
        }
    if offset < log.start_offset and log.latest_checkpoint is not None:
        answer["snapshot_id"] = log.latest_checkpoint._asdict()
        return answer
    if wanted.last_fetched_epoch != NO_EPOCH:
        epoch, end = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if 0 <= epoch < wanted.last_fetched_epoch or 0 <= end < offset:
            answer["diverging_epoch"] = {"epoch": epoch, "end_offset": end}
            return answer
    try:
        answer["records"] = log.read(offset, min(max_bytes, MAX_BYTES))
    except BrokerError as error:
        answer["error_code"] = int(error.code)
    return answer


def _current_leader(controller: ControllerContext) -> dict[str, int]:
    """As this voter knows it. One that does not count yet may have known of a later one and lost its disk: to
    whoever learns from a majority what was elected, it is no witness."""
    raft = controller.raft
    if raft.is_mute:
        return {"leader_id": -1, "leader_epoch": -1}
    return {"leader_id": raft.leader_id, "leader_epoch": raft.term}


def _framed(controller: ControllerContext, ctx: RequestContext, answer: dict[str, Any]) -> Buffers:
    topic = {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID, "partitions": [answer]}
    fields: dict[str, Any] = {"responses": [topic]}
    if ctx.version >= _FETCH_WITH_ENDPOINTS:
        fields["node_endpoints"] = [{**each, "rack": None} for each in _leader_endpoint(controller)]
    return ctx.framed((encode_response(ApiKey.FETCH, ctx.version, fields),))


def _leader_endpoint(controller: ControllerContext) -> list[dict[str, Any]]:
    """Who knows the quorum by controller.quorum.bootstrap.servers alone learns here where the leader is."""
    return [
        {"node_id": voter.node_id, "host": voter.host, "port": voter.port}
        for voter in controller.node.config.voters
        if voter.node_id == controller.raft.leader_id
    ]


def _refused(ctx: RequestContext, request: FetchRequest, code: ErrorCode) -> Buffers:
    topics = [
        {
            "topic": each.topic,
            "topic_id": each.topic_id,
            "partitions": [
                {
                    "partition_index": each.partition,
                    "error_code": int(code),
                    "high_watermark": -1,
                    "aborted_transactions": None,
                    "records": b"",
                }
            ],
        }
        for each in request.partitions
    ]
    return ctx.framed((encode_response(ApiKey.FETCH, ctx.version, {"responses": topics}),))


def _refused_whole(ctx: RequestContext, code: ErrorCode) -> Buffers:
    return ctx.framed(
        (encode_response(ApiKey.FETCH, ctx.version, {"error_code": int(code), "responses": []}),)
    )


async def handle_snapshot(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    if not _is_of_cluster(controller, request.cluster_id):
        return {"error_code": int(ErrorCode.INCONSISTENT_CLUSTER_ID), "topics": []}
    left = min(request.max_bytes, MAX_BYTES)  # for all pieces of the answer
    topics: list[dict[str, Any]] = []
    async for topic, wanted in in_slices(
        controller.node.long_work, each_within(request.topics, "partitions"), NAMED_PER_SLICE
    ):
        if wanted is None:
            topics.append({"name": topic.name, "partitions": []})
        else:
            piece = await _snapshot_piece(controller, topic.name, wanted, left)
            left -= len(piece["unaligned_records"])
            topics[-1]["partitions"].append(piece)
    fields: dict[str, Any] = {"error_code": 0, "topics": topics}
    if ctx.version >= _FETCH_SNAPSHOT_WITH_ENDPOINTS:
        fields["node_endpoints"] = _leader_endpoint(controller)
    return fields


async def _snapshot_piece(
    controller: ControllerContext, topic: str, wanted: Message, max_bytes: int
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "index": wanted.partition,
        "snapshot_id": wanted.snapshot_id,
        "position": wanted.position,
        "current_leader": _current_leader(controller),
        "unaligned_records": b"",
    }
    if topic != METADATA_TOPIC or wanted.partition != 0:
        return {**answer, "error_code": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    try:
        found = controller.metadata_reader.log.checkpoint(
            SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
        )
        size, data = await controller.node.blocking(partial(found.piece, wanted.position, max(max_bytes, 0)))
    except BrokerError as error:
        return {**answer, "error_code": int(error.code)}
    return {**answer, "size": size, "unaligned_records": data}


ROWS: Final = (ApiRow(ApiKey.FETCH_SNAPSHOT, (0, 1), (CLUSTER_ACTION,), controller=handle_snapshot),)
