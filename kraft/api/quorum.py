"""DescribeQuorum and ElectLeaders, answered by the active controller.

DescribeQuorum gives offsets of `__cluster_metadata`-0. Raft's own log counts commands, each of which is many
records or none, so a voter's log end offset is that of the metadata log, less the Raft entries that the voter
lacks, plus those that it has beyond the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraft.api.authz.checks import ALTER_CLUSTER, DESCRIBE_CLUSTER
from kraft.api.context import ControllerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import each_within, in_batches, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC, ZERO_UUID, TopicPartition
from metadata_quorum.protocol.replies import ElectionResult
from metadata_quorum.raft.port import QuorumState

NAMED_PER_SLICE: Final = 1000
_ALL_WAS_WELL: Final = {"error_code": int(ErrorCode.NONE), "error_message": None}


async def handle_describe_quorum(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    topics: list[dict[str, Any]] = []
    is_described = False
    async for topic, each in in_slices(
        controller.node.long_work, each_within(request.topics, "partitions"), NAMED_PER_SLICE
    ):
        if each is None:
            topics.append({"topic_name": topic.topic_name, "partitions": []})
        elif topic.topic_name != METADATA_TOPIC or each.partition_index != 0:
            topics[-1]["partitions"].append(_unknown(each.partition_index))
        elif not is_described:
            is_described = True
            topics[-1]["partitions"].append(_quorum(controller))
    return {**_ALL_WAS_WELL, "topics": topics, "nodes": _nodes(controller.node) if ctx.version >= 2 else []}


def _unknown(partition: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "error_code": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        "leader_id": -1,
        "leader_epoch": -1,
        "high_watermark": -1,
        "current_voters": [],
        "observers": [],
    }


def _quorum(controller: ControllerContext) -> dict[str, Any]:
    state: QuorumState = controller.raft.state()
    if not controller.raft.is_leader:
        return {
            **_unknown(0),
            "error_code": int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            "leader_id": state.leader_id,
            "leader_epoch": state.term,
        }
    reader = controller.metadata_reader
    end = reader.log.end_offset
    return {
        "partition_index": 0,
        "error_code": int(ErrorCode.NONE),
        "leader_id": state.leader_id,
        "leader_epoch": state.term,
        "high_watermark": end,
        "current_voters": [_voter(controller.node, state, end, voter) for voter in sorted(state.match_index)],
        "observers": [
            {
                "replica_id": replica_id,
                "replica_directory_id": ZERO_UUID,
                "log_end_offset": seen.end_offset,
                "last_fetch_timestamp": _time_of_day(controller.node, seen.fetched_at),
                "last_caught_up_timestamp": _time_of_day(controller.node, seen.caught_up_at),
            }
            for replica_id, seen in sorted(reader.observers.items())
            if replica_id not in state.match_index
        ],
    }


def _time_of_day(node: NodeContext, at: float | None) -> int:
    """Of a time on the loop's clock, in ms since 1970; -1 for none."""
    return -1 if at is None else max(node.now_ms() - int((node.loop.time() - at) * 1000), 0)


def _voter(node: NodeContext, state: QuorumState, end: int, voter: int) -> dict[str, Any]:
    behind = state.commit_index - state.match_index[voter]
    is_own = voter == node.node_id
    heard_at_ms = _time_of_day(node, node.loop.time() if is_own else state.last_contact.get(voter))
    return {
        "replica_id": voter,
        "replica_directory_id": ZERO_UUID,
        "log_end_offset": max(0, end - behind),
        "last_fetch_timestamp": heard_at_ms,
        "last_caught_up_timestamp": heard_at_ms if behind <= 0 else -1,
    }


def _nodes(node: NodeContext) -> list[dict[str, Any]]:
    names = node.config.controller_listener_names
    return [
        {
            "node_id": voter.node_id,
            "listeners": [{"name": name, "host": voter.host, "port": voter.port} for name in names[:1]],
        }
        for voter in node.config.voters
    ]


async def handle_elect_leaders(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    wanted = None
    if request.topic_partitions is not None:
        named = each_within(request.topic_partitions, "partitions")
        wanted = [
            TopicPartition(topic.topic, partition)
            async for topic, partition in in_slices(controller.node.long_work, named, NAMED_PER_SLICE)
            if partition is not None
        ]

    async def elect(partitions: Sequence[TopicPartition] | None) -> Sequence[ElectionResult]:
        return await controller.quorum_controller.elect_leaders(
            request.election_type, partitions, timeout_ms=request.timeout_ms
        )

    results = (
        await elect(None) if wanted is None else await in_batches(controller.node.long_work, wanted, elect)
    )
    answers: list[dict[str, Any]] = []
    async for each in in_slices(controller.node.long_work, results, NAMED_PER_SLICE):
        if not answers or answers[-1]["topic"] != each.topic:
            answers.append({"topic": each.topic, "partition_result": []})
        answers[-1]["partition_result"].append(
            {
                "partition_id": each.partition,
                "error_code": int(each.error),
                "error_message": each.message or None,
            }
        )
    return {"error_code": int(ErrorCode.NONE), "replica_election_results": answers}


def elect_leaders_error(request: Message, code: ErrorCode, message: str) -> Response:
    """At each partition too: version 0 has no other room for it."""
    failed = {"error_code": int(code), "error_message": message or None}
    results = [
        {
            "topic": topic.topic,
            "partition_result": [{"partition_id": number, **failed} for number in topic.partitions],
        }
        for topic in request.topic_partitions or ()
    ]
    return {"error_code": int(code), "replica_election_results": results}


def describe_quorum_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "error_message": message or None, "topics": [], "nodes": []}


ROWS: Final = (
    ApiRow(
        ApiKey.ELECT_LEADERS,
        (0, 2),
        (ALTER_CLUSTER,),
        forwarded=handle_elect_leaders,
        on_error=elect_leaders_error,
    ),
    ApiRow(
        ApiKey.DESCRIBE_QUORUM,
        (0, 2),
        (DESCRIBE_CLUSTER,),
        forwarded=handle_describe_quorum,
        on_error=describe_quorum_error,
    ),
)
