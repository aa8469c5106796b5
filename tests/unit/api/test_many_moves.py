"""AlterReplicaLogDirs of very many replicas: each that is here gets a directory and files for its copy."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api import log_dirs
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.contexts import broker_context, node_context

pytestmark = pytest.mark.row("P7")


class Replicas:
    """Those of topic `here`."""

    def __init__(self) -> None:
        self.begun = self.refused = 0

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp.topic == "here"

    def move(self, tp: TopicPartition, path: str) -> None:
        if tp not in self:
            self.refused += 1
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.begun += 1


def test_few_replicas_begin_to_move_in_one_turn_and_the_unknown_are_refused_quickly() -> None:
    """Five hundred made turns of two seconds."""

    async def test() -> None:
        replicas, turns = Replicas(), 0
        broker = broker_context(node_context(asyncio.get_running_loop()), replica_manager=replicas)
        named = [
            SimpleNamespace(name=name, partitions=range(many))
            for name, many in (("here", 500), ("unknown", 5000))
        ]
        request: Any = SimpleNamespace(dirs=[SimpleNamespace(path="/", topics=named)])
        task = asyncio.ensure_future(log_dirs.handle_alter(broker, SimpleNamespace(), request))
        most = before = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
            most, before = max(most, replicas.begun - before), replicas.begun
        assert (replicas.begun, replicas.refused) == (500, 5000)
        assert most == log_dirs.PARTITIONS_PER_SLICE // log_dirs.BEGUN_WEIGHS
        assert turns < 1100
        first, second = (await task)["results"]
        assert (first["topic_name"], second["topic_name"]) == ("here", "unknown")
        assert {row["error_code"] for row in second["partitions"]} == {3}

    asyncio.run(test())
