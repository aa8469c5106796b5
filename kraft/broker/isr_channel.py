"""Sends ISR changes to the controller: the data plane's `IsrChannel` port over the controller channel.

partition -> isr_requests -> here -> controller_requests -> AlterPartition -> the active controller
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult
from kraft.broker.controller_requests import ControllerRequests
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, Message
from metadata_quorum.foundation.errors import ErrorCode

ALTER_PARTITION_VERSION: Final = 3


class BrokerIsrChannel:
    """Asks in the name of this broker's current registration."""

    def __init__(self, controller: ControllerRequests) -> None:
        self._controller = controller

    async def alter_partitions(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        """One result per item, in order. Raises `BrokerError` where the request is refused as a whole, or
        REQUEST_TIMED_OUT."""
        answer = await self._controller.request(
            ApiKey.ALTER_PARTITION,
            ALTER_PARTITION_VERSION,
            {"topics": _topics(items)},
            "AlterPartition was refused as a whole",
        )
        found = {
            (topic.topic_id, partition.partition_index): partition
            for topic in answer.topics
            for partition in topic.partitions
        }
        return [_result(found.get((item.topic_id, item.partition))) for item in items]


def _topics(items: Sequence[AlterPartitionItem]) -> list[Fields]:
    partitions: dict[UUID, list[Fields]] = {}
    for item in items:
        partitions.setdefault(item.topic_id, []).append(
            {
                "partition_index": item.partition,
                "leader_epoch": item.change.leader_epoch,
                "new_isr_with_epochs": [
                    {"broker_id": member, "broker_epoch": epoch} for member, epoch in item.isr_with_epochs
                ],
                "leader_recovery_state": item.leader_recovery_state,
                "partition_epoch": item.change.partition_epoch,
            }
        )
    return [{"topic_id": topic_id, "partitions": each} for topic_id, each in partitions.items()]


def _result(answer: Message | None) -> AlterPartitionResult:
    if answer is None:
        return AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    return AlterPartitionResult(
        ErrorCode(answer.error_code),
        answer.leader_id,
        answer.leader_epoch,
        tuple(answer.isr),
        answer.partition_epoch,
        answer.leader_recovery_state,
    )
