"""AlterPartitionReassignments and ListPartitionReassignments: partitions on their way to other replicas.

Both are for the active controller: a list must show the reassignments that have just begun.
"""

from __future__ import annotations

from typing import Any, Final

from kraft.api.authz.checks import ALTER_CLUSTER, DESCRIBE_CLUSTER
from kraft.api.bounds import enough_replicas
from kraft.api.context import ControllerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import each_within, in_batches, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.protocol.commands import Reassignment

NAMED_PER_SLICE: Final = 1000
LOOKED_AT_PER_SLICE: Final = 5000


async def handle_alter(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    work, image = controller.node.long_work, controller.quorum_controller.image
    wanted = [
        Reassignment(
            topic=topic.name,
            partition=each.partition_index,
            replicas=None if each.replicas is None else enough_replicas(image, each.replicas),
        )
        async for topic, each in in_slices(work, each_within(request.topics, "partitions"), NAMED_PER_SLICE)
        if each is not None
    ]
    results = await in_batches(
        work,
        wanted,
        lambda items: controller.quorum_controller.alter_reassignments(
            items, may_resize=request.allow_replication_factor_change, timeout_ms=request.timeout_ms
        ),
    )
    topics: list[dict[str, Any]] = []
    async for answer in in_slices(work, results, NAMED_PER_SLICE):
        if not topics or topics[-1]["name"] != answer.topic:
            topics.append({"name": answer.topic, "partitions": []})
        topics[-1]["partitions"].append(
            {
                "partition_index": answer.partition,
                "error_code": int(answer.error),
                "error_message": answer.message or None,
            }
        )
    return {
        "allow_replication_factor_change": request.allow_replication_factor_change,
        "error_code": 0,
        "error_message": None,
        "responses": topics,
    }


async def handle_list(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    work = controller.node.long_work
    every = controller.quorum_controller.active_image.each_partition()
    wanted = None
    if request.topics is not None:
        named = each_within(request.topics, "partition_indexes")
        wanted = {(topic.name, number) async for topic, number in in_slices(work, named, NAMED_PER_SLICE)}
    topics: dict[str, list[dict[str, Any]]] = {}
    async for topic, number, partition in in_slices(work, every, LOOKED_AT_PER_SLICE):
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
