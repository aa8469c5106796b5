"""apply: stale commands, refusals, snapshots and disks that fail."""

from __future__ import annotations

import errno

import pytest

from metadata_quorum import commands as c
from metadata_quorum.decisions import producer_ids
from metadata_quorum.errors import BrokerError, ErrorCode, ExitCode, FatalError
from metadata_quorum.image import MetadataDelta, MetadataImage
from metadata_quorum.metadata_log import MetadataLog
from metadata_quorum.model import LeaderRecoveryState, PartitionRegistration
from metadata_quorum.records import PartitionChangeRecord
from metadata_quorum.replies import Refused
from metadata_quorum.state_machine import MetadataStateMachine
from tests.metadata_machine import DIRECTORY, Machine


def ready(*brokers: int) -> Machine:
    machine = Machine()
    machine.claim()
    machine.brokers(*brokers)
    return machine


@pytest.mark.row("Q7")
def test_a_deposed_controllers_command_is_refused() -> None:
    machine = ready(1)
    machine.term = 2
    before, end = machine.image, machine.log.end_offset
    with pytest.raises(BrokerError) as e:
        machine.run(c.FenceBroker(broker_id=1, broker_epoch=machine.epoch(1)), epoch=1)
    assert e.value.code is ErrorCode.NOT_CONTROLLER
    assert machine.image is before
    assert machine.log.end_offset == end


def test_the_broker_epoch_is_the_offset_of_its_registration() -> None:
    machine = ready()
    assert machine.register(7) == machine.image.offset == machine.log.end_offset - 1


def test_garbage_is_refused_not_raised() -> None:
    machine = ready()
    reply = machine.machine.apply(100, 1, b"\xff\x00garbage")
    assert isinstance(reply, Refused)
    assert reply.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_decision_that_raises_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ready(1)
    before = machine.image
    monkeypatch.setattr(producer_ids, "check_broker_epoch", lambda *args: 1 / 0)
    with pytest.raises(BrokerError) as e:
        machine.run(c.AllocateProducerIds(broker_id=1, broker_epoch=machine.epoch(1)))
    assert e.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert machine.image is before


def test_subscribers_hear_of_every_change_in_order() -> None:
    machine = ready(1)
    heard: list[tuple[MetadataDelta, MetadataImage]] = []
    machine.machine.subscribe(lambda delta, image: heard.append((delta, image)))
    machine.create("t", 2)
    machine.fence(1)
    (present, start), (created, first), (fenced, second) = heard
    assert present.changed_brokers == dict(start.brokers)
    (topic_id,) = created.changed_topics
    assert created.created_topics == {topic_id: "t"}
    assert set(created.changed_partitions[topic_id]) == {0, 1}
    assert fenced.image is first
    assert fenced.changed_brokers.keys() == {1}
    assert set(fenced.changed_partitions[topic_id]) == {0, 1}
    assert second is machine.image


@pytest.mark.row("Q3")
def test_a_snapshot_tells_subscribers_what_is_different() -> None:
    source = ready(1, 2)
    source.create("stays", 1, 2)
    source.create("goes", 1)
    reader = Machine()
    reader.machine.restore(source.machine.snapshot()(), source.index, source.term)()
    stays, goes = (source.image.topics_by_name[name].id for name in ("stays", "goes"))
    source.run(c.DeleteTopics(topic_ids=(goes,)))
    source.create("comes", 1)
    source.fence(2)
    heard: list[MetadataDelta] = []
    reader.machine.subscribe(lambda delta, image: heard.append(delta))
    reader.machine.restore(source.machine.snapshot()(), source.index, source.term)()
    _, delta = heard
    comes = source.image.topics_by_name["comes"].id
    assert delta.deleted_topics == {goes: "goes"}
    assert delta.created_topics == {comes: "comes"}
    assert delta.changed_topics == {comes, stays}
    assert delta.changed_brokers.keys() == {2}
    assert delta.apply() == reader.image == source.image
    assert reader.machine.rolling_hash == source.machine.rolling_hash


@pytest.mark.parametrize("cut", [0, 5, 40, -1])
def test_a_torn_snapshot_is_a_value_error(cut: int) -> None:
    data = ready(1).machine.snapshot()()
    with pytest.raises(ValueError):
        Machine().machine.restore(data[:cut], 1, 1)()


def test_a_damaged_snapshot_is_a_value_error() -> None:
    data = bytearray(ready(1).machine.snapshot()())
    data[-100] ^= 1
    with pytest.raises(ValueError):
        Machine().machine.restore(bytes(data), 1, 1)()


def test_a_full_disk_is_fatal_and_stops_the_machine() -> None:
    machine = Machine()
    fatal: list[FatalError] = []
    machine.machine = MetadataStateMachine(MetadataLog(machine.disk, DIRECTORY), fatal.append)
    machine.claim()
    machine.disk.fail("append", errno.ENOSPC)
    with pytest.raises(BrokerError) as e:
        machine.brokers(1)
    assert e.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [f.exit_code for f in fatal] == [ExitCode.DISK_FAILED]


def test_a_record_that_would_break_an_invariant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ready(1, 2)
    machine.create("t", 1, 2)
    topic = machine.image.topics_by_name["t"]

    def broken(image, command):
        decision = producer_ids.Decision()
        decision.records.append(PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=(1,), leader=2))
        return decision

    monkeypatch.setitem(
        __import__("metadata_quorum.state_machine", fromlist=["_"])._DECISIONS, c.AllocateProducerIds, broken
    )
    before = machine.image
    with pytest.raises(BrokerError) as e:
        machine.run(c.AllocateProducerIds(broker_id=1, broker_epoch=1))
    assert "P3" in e.value.message
    assert machine.image is before


def test_partition_registration_defaults() -> None:
    registration = PartitionRegistration((1, 2), (1,), 1, 0, 0)
    assert registration.leader_recovery_state == LeaderRecoveryState.RECOVERED
    assert registration.preferred_replica == 1


def test_what_looks_at_every_partition_of_many_is_judged_beside_the_loop() -> None:
    """And comes to the same: judged first, the image as it was until it is adopted."""
    machine, twin = Machine(), Machine()
    for each in (machine, twin):
        each.claim()
        each.brokers(1, 2, 3)
        each.create("t", 1000, 3)
    broker = machine.image.brokers[3]
    fence = c.FenceBroker(broker_id=3, broker_epoch=broker.broker_epoch)
    data = c.encode(c.Proposal(1, 1, fence))
    before = machine.image
    work = machine.machine.prepare(90, 1, data)
    assert work is not None
    adopt = work()
    assert machine.image is before
    assert adopt() == twin.machine.apply(90, 1, data)
    assert machine.image == twin.image
    assert machine.image.brokers[3].fenced
    assert machine.machine.rolling_hash == twin.machine.rolling_hash
    assert machine.log.read(before.offset + 1, 1 << 30) == twin.log.read(before.offset + 1, 1 << 30)
    small = c.encode(c.Proposal(1, 1, c.AllocateProducerIds(broker_id=1, broker_epoch=5)))
    assert machine.machine.prepare(91, 1, small) is None
    assert ready(1).machine.prepare(91, 1, data) is None
    many = c.ElectLeaders(
        election_type=0, partitions=tuple(c.PartitionName(topic="t" * 20, partition=p) for p in range(1000))
    )
    assert machine.machine.prepare(91, 1, c.encode(c.Proposal(1, 1, many))) is not None
    assert machine.machine.prepare(91, 1, b"\x7f") is None
