"""Controllers of Apache Kafka whose voters stand in the log (kraft.version 1), not in the properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from kraft.local.free_ports import HOST
from metadata_quorum.foundation.uuids import uuid_text
from tests.support.kafka.kafka_node import KafkaNode

_RESERVED: Final = 100
"""Kafka gives directories no id up to here."""


@dataclass(frozen=True)
class DynamicQuorum:
    """How its nodes are formatted, and how they find each other."""

    kafka: KafkaNode
    ports: Mapping[int, int]
    """Of the controllers, by their ids."""

    @property
    def properties(self) -> dict[str, str]:
        """Of every node."""
        servers = ",".join(f"{HOST}:{port}" for port in self.ports.values())
        return {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": servers}

    @property
    def controller(self) -> KafkaNode:
        voters = ",".join(
            f"{voter}@{HOST}:{port}:{uuid_text(UUID(int=_RESERVED + voter))}"
            for voter, port in self.ports.items()
        )
        return replace(self.kafka, formatted_with=("--initial-controllers", voters))

    @property
    def broker(self) -> KafkaNode:
        return replace(self.kafka, formatted_with=("--no-initial-controllers",))
