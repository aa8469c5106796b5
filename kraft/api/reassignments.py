"""ListPartitionReassignments: which partitions are on their way to other replicas."""

from __future__ import annotations

from typing import Any, Final

from kraft.api.row import EVERYWHERE, ApiRow, Response
from kraft.context import NodeContext, RequestContext
from kraft.wire.bridge import Message


def handle_list(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    """Answered from this node's own image: what is committed is not the controller's secret."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, number, partition in node.image.each_partition():
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


ROWS: Final = (ApiRow(46, "ListPartitionReassignments", 0, 0, EVERYWHERE, handle_list),)
