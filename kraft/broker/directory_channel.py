"""Sends directory assignments to the controller: the data plane's `DirectoryChannel` port.

replica_manager -> directory_assignments -> here, with our broker id and epoch -> AssignReplicasToDirs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from data_plane.replication.directory_assignments import ReplicaAssignment
from kraft.broker.lifecycle import BrokerLifecycle
from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

ASSIGN_REPLICAS_TO_DIRS_VERSION: Final = 0


class BrokerDirectoryChannel:
    """Reports in the name of this broker's current registration."""

    def __init__(
        self, broker_id: int, lifecycle: BrokerLifecycle, controller_channel: ControllerChannel
    ) -> None:
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self._controller_channel = controller_channel

    async def assign_replicas(self, places: Sequence[ReplicaAssignment]) -> None:
        found: dict[UUID, dict[UUID, list[dict[str, int]]]] = {}
        for place in places:
            partitions = found.setdefault(place.directory, {}).setdefault(place.topic_id, [])
            partitions.append({"partition_index": place.partition})
        directories: list[dict[str, Any]] = [
            {
                "id": directory,
                "topics": [{"topic_id": topic_id, "partitions": each} for topic_id, each in topics.items()],
            }
            for directory, topics in found.items()
        ]
        fields = {
            "broker_id": self._broker_id,
            "broker_epoch": self._lifecycle.broker_epoch,
            "directories": directories,
        }
        answer = await self._controller_channel.request(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS, ASSIGN_REPLICAS_TO_DIRS_VERSION, fields
        )
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(answer.error_code), "AssignReplicasToDirs was refused as a whole")
