"""A broker that was stopped cleanly and lacks a log directory now may have lost something, whether or not it
says so: another version, or Apache Kafka, did not write down which there were."""

from __future__ import annotations

from uuid import UUID

import pytest

from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol.requests import CreatableTopic
from tests.unit.metadata.controller_node import Node, virtual

ONE, OTHER, NEW = UUID(int=1001), UUID(int=1002), UUID(int=1003)


@pytest.mark.parametrize(
    ("back_with", "eligible"),
    [((ONE, OTHER), (1,)), ((OTHER, ONE, NEW), (1,)), ((ONE,), ()), ((ONE, NEW), ())],
)
def test_a_replica_that_may_be_lost_is_not_eligible(
    back_with: tuple[UUID, ...], eligible: tuple[int, ...]
) -> None:
    @virtual
    async def come_back() -> None:
        node = Node()
        await node.lead()
        epoch = await node.register(1, log_dirs=(ONE, OTHER))
        await node.beat(1)
        await node.controller.create_topics([CreatableTopic("t", 1, 1)])
        await node.controller.propose(c.FenceBroker(broker_id=1, broker_epoch=epoch))
        node.connection_up(1)
        node.connection_broken(1)
        await node.register(1, incarnation=2, previous=epoch, log_dirs=back_with)
        partition = node.controller.image.topics_by_name["t"].partitions[0]
        assert (*partition.isr, *partition.elr) == eligible

    come_back()


@virtual
async def test_a_directory_that_had_failed_is_not_missed() -> None:
    """What lay in it has left its ISRs when it failed."""
    node = Node()
    await node.lead()
    epoch = await node.register(1, log_dirs=(ONE, OTHER))
    await node.beat(1)
    await node.controller.create_topics([CreatableTopic("t", 1, 1)])
    topic = node.controller.image.topics_by_name["t"]
    place = c.DirectoryAssignment(topic_id=topic.id, partition=0, directory=ONE)
    await node.controller.assign_replicas_to_dirs(1, epoch, [place])
    await node.controller.propose(c.FailLogDirs(broker_id=1, broker_epoch=epoch, offline=(OTHER,)))
    await node.controller.propose(c.FenceBroker(broker_id=1, broker_epoch=epoch))
    node.connection_up(1)
    node.connection_broken(1)
    await node.register(1, incarnation=2, previous=epoch, log_dirs=(ONE, NEW))
    partition = node.controller.image.topics_by_name["t"].partitions[0]
    assert (*partition.isr, *partition.elr) == (1,)
