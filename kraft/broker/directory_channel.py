"""Sends directory assignments to the controller: the data plane's `DirectoryChannel` port.

replica_manager -> directory_assignments -> here -> controller_requests -> AssignReplicasToDirs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from data_plane.replication.directory_assignments import ReplicaAssignment
from kraft.broker.controller_requests import ControllerRequests
from kraft.wire.api_keys import ApiKey

ASSIGN_REPLICAS_TO_DIRS_VERSION: Final = 0


class BrokerDirectoryChannel:
    """Reports in the name of this broker's current registration."""

    def __init__(self, controller: ControllerRequests) -> None:
        self._controller = controller

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
        await self._controller.request(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ASSIGN_REPLICAS_TO_DIRS_VERSION,
            {"directories": directories},
            "AssignReplicasToDirs was refused as a whole",
        )
