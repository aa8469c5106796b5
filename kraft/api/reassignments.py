"""AlterPartitionReassignments and ListPartitionReassignments: partitions on their way to other replicas.

Both are for the active controller: a list must show the reassignments that have just begun.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from kraft.api.authz.checks import ALTER_CLUSTER, DESCRIBE_CLUSTER
from kraft.api.context import ControllerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import in_batches
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.protocol.commands import Reassignment


async def handle_alter(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    wanted = [
        Reassignment(
            topic=topic.name,
            partition=each.partition_index,
            replicas=None if each.replicas is None else tuple(each.replicas),
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    results = await in_batches(
        controller.node.long_work,
        wanted,
        lambda items: controller.quorum_controller.alter_reassignments(
            items, may_resize=request.allow_replication_factor_change, timeout_ms=request.timeout_ms
        ),
    )
    topics = []
    for name, answers in groupby(results, key=lambda result: result.topic):
        partitions: list[dict[str, Any]] = [
            {
                "partition_index": each.partition,
                "error_code": int(each.error),
                "error_message": each.message or None,
            }
            for each in answers
        ]
        topics.append({"name": name, "partitions": partitions})
    return {
        "allow_replication_factor_change": request.allow_replication_factor_change,
        "error_code": 0,
        "error_message": None,
        "responses": topics,
    }


def handle_list(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, number, partition in controller.quorum_controller.active_image.each_partition():
        if partition.reassigning and (wanted is None or (topic.name, number) in wanted):
            topics.setdefault(topic.name, []).append(
                {
                    "partition_index": number,
                    "replicas": partition.replicas,
                    "adding_replicas": partition.adding_replicas,
                    "removing_replicas": partition.removing_replicas,
                }
            )
    return {
        "error_code": 0,
        "error_message": None,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


ROWS: Final = (
    ApiRow(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        (0, 1),
        (ALTER_CLUSTER,),
        forwarded=handle_alter,
    ),
    ApiRow(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0, 0),
        (DESCRIBE_CLUSTER,),
        forwarded=handle_list,
    ),
)
