"""Broker sessions when the quorum's leader changes, on a controller with all that it needs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.api import brokers
from kraft.net.connection_state import ConnectionState
from metadata_quorum.controller.broker_liveness import BrokerLiveness
from metadata_quorum.controller.broker_sessions import BrokerSessions
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.records import endpoint_fields
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol import stamped_command
from metadata_quorum.protocol.stamped_command import StampedCommand
from tests.unit.metadata.controller_node import Node, virtual


@pytest.mark.row("Q2")
@virtual
async def test_a_connection_that_broke_long_before_a_claim_gives_nobody_a_new_session() -> None:
    """It was taken for a sign that the controller itself had been held up, and all sessions were renewed."""
    node = Node()
    await node.lead()
    await node.brokers(1, 2)
    node.raft.step_down()
    node.connection_up(2)
    node.connection_broken(2)
    await asyncio.sleep(5)
    await node.lead()
    assert await node.until(lambda: node.fenced(2), 1) < 0.1
    await node.until(lambda: node.fenced(1), 4)  # of its session of 9 s, 5 had passed


@pytest.mark.row("Q2")
@virtual
async def test_a_registration_committed_in_the_last_moment_leaves_no_session_behind() -> None:
    """A standby that believed to have one did not forget a broken connection when the broker was back."""
    node = Node()
    await node.lead()
    node.raft.held = True
    registered = asyncio.ensure_future(node.register(1))
    await asyncio.sleep(0)
    node.raft.commit()
    node.raft.step_down()
    node.raft.held = False
    unfence = c.UnfenceBroker(broker_id=1, broker_epoch=await registered)
    node.machine.apply(9, 5, stamped_command.encode(StampedCommand(5, 1, unfence)))  # another controller's
    node.raft.term = 5
    node.connection_up(1)
    node.connection_broken(1)
    node.connection_up(1)
    await asyncio.sleep(1)
    await node.lead()
    await asyncio.sleep(1)
    assert not node.fenced(1)


@pytest.mark.row("Q2")
@virtual
async def test_a_connection_of_an_earlier_incarnation_says_nothing_of_the_present_one() -> None:
    """Of a host that lost power: it stands open at the controller, long after the broker is back."""
    node = Node()
    await node.lead()
    await node.brokers(1)
    before = node.connection_up(1)
    await node.until(lambda: node.fenced(1), 10)
    await node.register(1, incarnation=2)
    await node.beat(1)
    node.connection_up(1)
    assert not node.controller.connection_broken(before)
    await asyncio.sleep(1)
    assert not node.fenced(1)
    node.controller.connection_up(1, before.broker_epoch, next(node.connections))
    node.connection_broken(1)
    assert await node.until(lambda: node.fenced(1), 1) < 0.25


@pytest.mark.row("Q2")
@virtual
async def test_a_connection_that_has_been_replaced_says_nothing() -> None:
    """One that was reset on its way, which the controller does not hear of until it is idle for long."""
    node = Node()
    await node.lead()
    await node.brokers(1)
    first = node.connection_up(1)
    node.connection_up(1)
    await node.beat(1)
    assert not node.controller.connection_broken(first)
    node.controller.connection_up(1, first.broker_epoch - 1, next(node.connections))
    await asyncio.sleep(1)
    assert not node.fenced(1)
    first = node.connection_up(1)
    node.connection_up(1)
    node.connection_broken(1)
    assert await node.until(lambda: node.fenced(1), 1) < 0.25


@pytest.mark.row("Q2")
@virtual
async def test_the_end_of_an_earlier_connection_fences_nobody_whose_newest_was_read_first() -> None:
    """A controller that stood still reads its connections in any order."""
    node = Node()
    await node.lead()
    await node.brokers(1)
    earlier, newest = next(node.connections), next(node.connections)
    epoch = node.epoch(1)
    node.controller.connection_up(1, epoch, newest)
    await node.beat(1)
    late = node.controller.connection_up(1, epoch, earlier)
    await node.beat(1)
    assert not node.controller.connection_broken(late)
    await asyncio.sleep(1)
    assert not node.fenced(1)


@pytest.mark.row("Q2")
@virtual
async def test_what_a_broker_asked_for_on_a_connection_that_it_has_replaced_is_refused() -> None:
    """It has asked again, and the answer may have been another one: after INELIGIBLE_REPLICA a leader does
    not wait for that replica, and the first copy would have put it into the ISR."""
    node = Node()
    await node.lead()
    await node.brokers(1)
    late = ConnectionState(heartbeats_of=node.connection_up(1))
    controller: Any = SimpleNamespace(quorum_controller=node.controller)
    ctx: Any = SimpleNamespace(connection=SimpleNamespace(state=late))
    request: Any = SimpleNamespace(broker_id=1, broker_epoch=node.epoch(1), topics=[], directories=[])
    assert not node.controller.is_replaced(node.links[1])
    node.connection_up(1)
    for handle in (brokers.handle_alter_partition, brokers.handle_assign_replicas):
        with pytest.raises(BrokerError) as refusal:
            await handle(controller, ctx, request)
        assert refusal.value.code is ErrorCode.NETWORK_EXCEPTION
    assert not node.controller.is_replaced(node.links[1])


@pytest.mark.row("Q2")
@virtual
async def test_a_heartbeat_of_an_incarnation_that_is_not_registered_displaces_no_connection() -> None:
    """With an epoch out of the air it did: no connection counted any more, and a kill went unnoticed."""
    node = Node()
    await node.lead()
    await node.brokers(1)
    node.controller.connection_up(1, 1 << 60, next(node.connections))
    node.connection_up(1)
    node.connection_broken(1)
    assert await node.until(lambda: node.fenced(1), 1) < 0.25


@pytest.mark.row("Q2")
@virtual
async def test_a_claim_fences_nobody_for_the_connection_of_an_earlier_incarnation() -> None:
    """The broker was killed, and is back; its new connection has not come to this controller yet."""
    node = Node()
    await node.lead()
    await node.brokers(1)
    node.raft.step_down()
    node.connection_up(1)
    node.connection_broken(1)
    before = node.controller.image.brokers[1]
    back = c.RegisterBroker(
        broker_id=1,
        incarnation_id=UUID(int=99),
        endpoints=endpoint_fields(before.endpoints),
        replaces_epoch=before.broker_epoch,
    )
    node.machine.apply(20, 5, stamped_command.encode(StampedCommand(5, 1, back)))  # another controller's
    unfence = c.UnfenceBroker(broker_id=1, broker_epoch=node.epoch(1))
    node.machine.apply(21, 5, stamped_command.encode(StampedCommand(5, 1, unfence)))
    node.raft.term = 5
    await asyncio.sleep(1)
    await node.lead()
    await asyncio.sleep(1)
    assert not node.fenced(1)


async def liveness_of(node: Node) -> BrokerLiveness:
    """Of a controller on which broker 1 is registered."""
    await node.lead()
    await node.brokers(1)
    sessions = BrokerSessions(timeout_s=9, link_grace_s=0.2)
    return BrokerLiveness(sessions, asyncio.get_running_loop(), node.machine, lambda broker, on_done: None)


@pytest.mark.row("Q2")
@virtual
async def test_heartbeats_in_the_name_of_brokers_that_there_are_not_leave_nothing_behind() -> None:
    """Of whoever reaches an unsecured listener: a session was kept for every id, for ever."""
    liveness = await liveness_of(Node())
    sessions = liveness.sessions
    for stranger in range(100, 200):
        if stranger == 150:
            liveness.begin()
        link = sessions.connection_up(stranger, 7, stranger)
        sessions.heartbeat_came(stranger, 1.0)
        if stranger % 2:
            liveness.connection_closed(link)
        else:
            assert liveness.connection_broken(link)
            sessions.process_gone(stranger, 1.0)
        sessions.heartbeat_came(stranger, 1.0)  # of a connection that is gone
    assert len(sessions) == 1


@pytest.mark.row("Q2")
@virtual
async def test_a_standby_may_hear_of_a_broker_before_its_registration() -> None:
    """An earlier connection in its name, which ends meanwhile, takes nothing away."""
    liveness = await liveness_of(Node())
    sessions = liveness.sessions
    earlier = sessions.connection_up(2, 7, 0)
    newer = sessions.connection_up(2, 7, 1)
    liveness.connection_closed(earlier)
    assert len(sessions) == 1
    assert liveness.connection_broken(newer)
    assert len(sessions) == 0
    broken = sessions.connection_up(1, 1, 2)
    assert liveness.connection_broken(broken)
    assert len(sessions) == 1  # of a broker that there is
