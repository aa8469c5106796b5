"""apply: stale commands, refusals, snapshots and disks that fail."""

from __future__ import annotations

import errno
from dataclasses import replace
from uuid import UUID

import pytest

from metadata_quorum.controller import state_machine
from metadata_quorum.decisions import acls, producer_ids, table
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, ExitCode, FatalError
from metadata_quorum.foundation.model import LeaderRecoveryState, PartitionRegistration
from metadata_quorum.metadata import snapshot
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import (
    AccessControlEntryRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    encode,
)
from metadata_quorum.metadata.snapshot import decode_checkpoint, encode_checkpoint
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol import stamped_command
from metadata_quorum.protocol.replies import Refused
from metadata_quorum.protocol.stamped_command import StampedCommand
from metadata_quorum.raft.port import QUICK_WEIGHT
from tests.support.metadata_machine import MetadataMachine


def ready(*brokers: int) -> MetadataMachine:
    machine = MetadataMachine()
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
def test_a_snapshot_notifies_subscribers_of_what_is_different() -> None:
    source = ready(1, 2)
    source.create("stays", 1, 2)
    source.create("goes", 1)
    reader = MetadataMachine()
    reader.machine.restore(source.machine.snapshot()(), source.index, source.term)()
    stays, goes = (source.image.topics_by_name[name].id for name in ("stays", "goes"))
    source.run(c.DeleteTopics(topic_ids=(goes,)))
    source.create("comes", 1)
    source.fence(2)
    heard: list[MetadataDelta] = []
    prepared: list[MetadataImage] = []
    reader.machine.subscribe(lambda delta, image: heard.append(delta), prepared.append)
    adopt = reader.machine.restore(source.machine.snapshot()(), source.index, source.term)
    assert (len(heard), len(prepared)) == (1, 1)  # another thread may do so much
    adopt()
    assert prepared == [reader.machine.image]
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
        MetadataMachine().machine.restore(data[:cut], 1, 1)()


def test_a_damaged_snapshot_is_a_value_error() -> None:
    data = bytearray(ready(1).machine.snapshot()())
    data[-100] ^= 1
    with pytest.raises(ValueError):
        MetadataMachine().machine.restore(bytes(data), 1, 1)()


@pytest.mark.row("Q13")
@pytest.mark.parametrize("level", [0, 1])
def test_a_snapshot_with_what_only_a_newer_version_knows(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """Where the level says so, the node ends with a sentence, and not as if its disk were damaged."""
    source = ready(1)
    image = replace(source.image, features={**source.image.features, "newer.version": level})
    monkeypatch.setattr(
        snapshot, "encode", lambda record: newer(record) if is_broker(record) else encode(record)
    )
    data = encode_checkpoint(image)
    with pytest.raises(FatalError if level else ValueError) as refused:
        decode_checkpoint(data, 1, 1)
    if isinstance(refused.value, FatalError):
        assert refused.value.exit_code is ExitCode.BAD_CONFIG
        assert refused.value.reason.startswith(
            "the cluster runs at newer.version=1, and this version of kraft"
        )


def is_broker(record: MetadataRecord) -> bool:
    return isinstance(record, RegisterBrokerRecord)


def newer(record: MetadataRecord) -> bytes:
    """Of a type that is not known here."""
    return b"\1\x7f" + encode(record)[2:]


def test_a_full_disk_ends_the_voter_before_it_sends_another_history() -> None:
    """A refusal would be another outcome than the other voters': they compare theirs with this one's."""
    machine = MetadataMachine()
    machine.claim()
    before = machine.machine.rolling_hash
    machine.disk.fail("append", errno.ENOSPC)
    with pytest.raises(OSError) as e:
        machine.brokers(1)
    assert e.value.errno == errno.ENOSPC
    assert machine.machine.rolling_hash == before


def test_lack_of_memory_is_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ready(1)

    def starved(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(producer_ids, "check_broker_epoch", starved)
    with pytest.raises(MemoryError):
        machine.run(c.AllocateProducerIds(broker_id=1, broker_epoch=machine.epoch(1)))


def test_decisions_are_what_they_were() -> None:
    """Voters of two versions decide the same journal, and so does one voter before and after an upgrade.
    Where this fails, a decision has changed: give its command a field whose default means the old way."""
    machine = ready(1, 2, 3)
    machine.create("t", 3, 3, min_insync_replicas="2")
    machine.create("u", 1, 2)
    machine.fence(3)
    machine.alter(1, machine.isr_change("t", (1,)))
    machine.shut_down(2)
    machine.unfence(3)
    machine.run(c.ElectLeaders(election_type=0, partitions=(c.PartitionName(topic="t", partition=0),)))
    move = c.Reassignment(topic="u", partition=0, replicas=(3,))
    machine.run(c.AlterReassignments(reassignments=(move,)))
    machine.run(c.CreatePartitions(topics=(c.NewPartitions(name="u", count=3),)))
    machine.set_config(4, "", "unclean.leader.election.enable", "true")
    machine.run(c.AllocateProducerIds(broker_id=1, broker_epoch=machine.epoch(1)))
    machine.run(c.CreateAcls(acls=(acl(1, "t"), acl(2, "t"), acl(3, "u"))))
    machine.run(c.DeleteAcls(filters=(acl_filter("t"),)))
    machine.run(c.DeleteTopics(topic_ids=(machine.image.topics_by_name["t"].id,)))
    machine.term = 2
    machine.claim(2)
    machine.register(2, incarnation=2)
    machine.unfence(2)
    assert machine.machine.rolling_hash.hex() == "994c6589eae8d8e402f4b12690f71c5e"


def test_a_record_that_would_break_an_invariant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ready(1, 2)
    machine.create("t", 1, 2)
    topic = machine.image.topics_by_name["t"]

    def broken(image, command):
        decision = producer_ids.Decision()
        decision.records.append(PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=(1,), leader=2))
        return decision

    row = table.ROWS[c.AllocateProducerIds]
    monkeypatch.setitem(table.ROWS, c.AllocateProducerIds, row._replace(decide=broken))
    before = machine.image
    with pytest.raises(BrokerError) as e:
        machine.run(c.AllocateProducerIds(broker_id=1, broker_epoch=1))
    assert "ISR_WELL_FORMED" in e.value.message
    assert machine.image is before


def test_partition_registration_defaults() -> None:
    registration = PartitionRegistration((1, 2), (1,), 1, 0, 0)
    assert registration.leader_recovery_state == LeaderRecoveryState.RECOVERED
    assert registration.preferred_replica == 1


def test_what_looks_at_every_partition_of_many_is_judged_beside_the_loop() -> None:
    """And comes to the same: judged first, the image as it was until it is adopted."""
    machine, twin = MetadataMachine(), MetadataMachine()
    for each in (machine, twin):
        each.claim()
        each.brokers(1, 2, 3)
        each.create("t", 1000, 3)
    broker = machine.image.brokers[3]
    fence = c.FenceBroker(broker_id=3, broker_epoch=broker.broker_epoch)
    data = stamped_command.encode(StampedCommand(1, 1, fence))
    before = machine.image
    assert machine.machine.weight(data) > QUICK_WEIGHT
    adopt = machine.machine.prepare(90, 1, data)
    assert machine.image is before
    assert adopt() == twin.machine.apply(90, 1, data)
    assert machine.image == twin.image
    assert machine.image.brokers[3].fenced
    assert machine.machine.rolling_hash == twin.machine.rolling_hash
    assert machine.log.read(before.offset + 1, 1 << 30) == twin.log.read(before.offset + 1, 1 << 30)
    small = stamped_command.encode(StampedCommand(1, 1, c.AllocateProducerIds(broker_id=1, broker_epoch=5)))
    assert machine.machine.weight(small) <= QUICK_WEIGHT
    assert ready(1).machine.weight(data) <= QUICK_WEIGHT
    many = c.ElectLeaders(
        election_type=0, partitions=tuple(c.PartitionName(topic="t" * 20, partition=p) for p in range(1000))
    )
    assert machine.machine.weight(stamped_command.encode(StampedCommand(1, 1, many))) > QUICK_WEIGHT


def test_what_cannot_be_weighed_is_refused_like_what_cannot_be_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would end every voter otherwise."""
    machine = ready(1)
    assert machine.machine.weight(b"\x7f") > QUICK_WEIGHT
    monkeypatch.setattr(state_machine, "weight", lambda image, command: 1 / 0)
    fence = c.FenceBroker(broker_id=1, broker_epoch=machine.epoch(1))
    assert machine.machine.weight(stamped_command.encode(StampedCommand(1, 1, fence))) > QUICK_WEIGHT


def test_every_command_is_decided_and_weighed() -> None:
    assert table.ROWS.keys() == set(c.COMMANDS.types)


def test_a_command_weighs_what_it_makes() -> None:
    """A few bytes may make ten thousand partitions, or go through all there are."""
    machine = ready(1, 2, 3)
    machine.create("t", 1000, 1)
    machine.run(c.CreateAcls(acls=tuple(acl(n, f"t{n}") for n in range(1000))))

    def beside(command: c.Command[object]) -> bool:
        return machine.machine.weight(stamped_command.encode(StampedCommand(1, 1, command))) > QUICK_WEIGHT

    def topics(partitions: int, count: int = 1) -> c.CreateTopics:
        new = c.NewTopic(name="n", topic_id=UUID(int=9), partitions=partitions, replication_factor=1)
        return c.CreateTopics(topics=(new,) * count)

    def grown(count: int) -> c.CreatePartitions:
        return c.CreatePartitions(topics=(c.NewPartitions(name="t", count=count),))

    assert beside(topics(10_000))
    assert beside(topics(100, 100))
    assert not beside(topics(100))
    assert beside(grown(2000))
    assert not beside(grown(1001))
    assert beside(c.DeleteTopics(topic_ids=(machine.image.topics_by_name["t"].id,)))
    assert beside(c.ElectLeaders(election_type=0, all_partitions=True))
    assert not beside(c.ElectLeaders(election_type=0, partitions=(c.PartitionName(topic="t", partition=0),)))
    assert beside(c.DeleteAcls(filters=(acl_filter("t0"),)))
    assert not beside(c.CreateAcls(acls=(acl(2000, "t"),)))
    levels = tuple(c.FeatureUpdate(name=f"f{n}", level=1) for n in range(200))
    assert beside(c.UpdateFeatures(controller_id=1, updates=levels, supported=()))


def test_acls_are_gone_through_for_filters_that_mean_many_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    judge = acls.matches

    def counted(wanted, entry):
        nonlocal looked
        looked += 1
        return judge(wanted, entry)

    monkeypatch.setattr(acls, "matches", counted)
    machine = ready(1)
    machine.run(c.CreateAcls(acls=tuple(acl(1000 - n, f"t{n}") for n in range(1000))))
    wanted = (*(acl_filter(f"t{n}") for n in range(500)), acl_filter(None))
    results = machine.run(c.DeleteAcls(filters=wanted))
    assert looked == 1500
    assert [len(each.deleted) for each in results] == [*[1] * 500, 1000]
    assert [each.id.int for each in results[-1].deleted] == list(range(1, 1001))
    assert not machine.image.acls


def test_an_election_in_all_partitions_is_one_in_each_that_needs_it() -> None:
    """And no name of a partition is in the command."""
    named, all_of_them = ready(1, 2), ready(1, 2)
    for machine in (named, all_of_them):
        machine.create_assigned("t", [(1, 2), (2, 1), (1, 2)])
        machine.create_assigned("u", [(1, 2)])
        machine.fence(1)
        machine.unfence(1)
        for topic, partition in (("t", 0), ("u", 0)):
            machine.alter(2, machine.isr_change(topic, (1, 2), partition))
    names = tuple(
        c.PartitionName(topic=topic.name, partition=partition)
        for topic, partition, _ in named.image.each_partition()
    )
    results = named.run(c.ElectLeaders(election_type=0, partitions=names))
    found = all_of_them.run(c.ElectLeaders(election_type=0, all_partitions=True))
    assert found == tuple(each for each in results if each.error is not ErrorCode.ELECTION_NOT_NEEDED)
    assert [(each.topic, each.partition, each.error) for each in found] == [
        ("t", 0, ErrorCode.NONE),
        ("t", 2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ("u", 0, ErrorCode.NONE),
    ]
    assert all_of_them.image.topics_by_name["t"].partitions == named.image.topics_by_name["t"].partitions


def acl(number: int, name: str) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number), resource_type=2, resource_name=name, pattern_type=3,
        principal="User:u", host="*", operation=3, permission_type=3,
    )  # fmt: skip


def acl_filter(name: str | None) -> c.AclFilter:
    return c.AclFilter(
        resource_type=2, resource_name=name, pattern_type=3, principal=None, host=None, operation=1,
        permission_type=1,
    )  # fmt: skip


def test_what_is_deleted_has_one_order_however_the_image_was_come_by() -> None:
    """A voter that has restored a snapshot writes the same batch as one that was there all the time."""
    machine, restored = MetadataMachine(), MetadataMachine()
    machine.claim()
    machine.run(c.CreateAcls(acls=(acl(9, "t"), acl(5, "t"), acl(7, "t"))))
    restored.machine.restore(machine.machine.snapshot()(), machine.index, machine.term)()
    command = c.DeleteAcls(filters=(acl_filter("t"),))
    data = stamped_command.encode(StampedCommand(machine.term, 1, command))
    at = machine.log.end_offset
    replies = [each.machine.apply(machine.index + 1, machine.term, data) for each in (machine, restored)]
    assert replies[0] == replies[1]
    assert machine.log.read(at, 1 << 20) == restored.log.read(at, 1 << 20)
    assert machine.machine.rolling_hash == restored.machine.rolling_hash


THROTTLED = "leader.replication.throttled.replicas"


def alter(operation: int, value: str, *topics: str) -> c.IncrementalAlterConfigs:
    wish = c.ConfigOperation(name=THROTTLED, operation=operation, value=value)
    changes = (c.ConfigChange(resource_type=2, resource_name=topic, operations=(wish,)) for topic in topics)
    return c.IncrementalAlterConfigs(changes=tuple(changes), bounds_lists=True)


def test_values_that_are_checked_again_have_their_weight() -> None:
    """Forty topics whose lists are as long as they may be, and forty operations of three bytes."""
    machine = ready(1)
    names = [f"t{n}" for n in range(40)]
    for name in names:
        machine.create(name, 1)
        machine.run(alter(c.CONFIG_SET, ",".join(f"{n}:1" for n in range(5000)), name))
    command = stamped_command.encode(StampedCommand(1, 1, alter(c.CONFIG_APPEND, "1:2", *names)))
    assert machine.machine.weight(command) > QUICK_WEIGHT
    one = stamped_command.encode(StampedCommand(1, 1, alter(c.CONFIG_APPEND, "1:2", "t0")))
    assert machine.machine.weight(one) <= QUICK_WEIGHT


def test_no_list_grows_longer_than_a_string_may_be() -> None:
    """DescribeConfigs could not answer any more (KAFKA-18020)."""
    machine = ready(1)
    machine.create("t", 1)
    half = ",".join(f"{n}:1" for n in range(1000, 4000))
    (result,) = machine.run(alter(c.CONFIG_SET, half, "t"))
    assert result.error is ErrorCode.NONE
    (result,) = machine.run(alter(c.CONFIG_APPEND, half.replace(":1", ":2"), "t"))
    assert result.error is ErrorCode.INVALID_CONFIG
    assert result.message == (
        "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
    )
    (result,) = machine.run(alter(c.CONFIG_APPEND, f"{half},5:5,5:5", "t"))
    assert result.error is ErrorCode.NONE
    assert machine.image.config(2, "t") == {THROTTLED: f"{half},5:5"}
    (result,) = machine.run(alter(c.CONFIG_SUBTRACT, f"{half},9:9", "t"))
    assert machine.image.config(2, "t") == {THROTTLED: "5:5"}


def test_an_older_controllers_command_is_decided_as_the_older_one_decides_it() -> None:
    """Else the voters of two versions part, and stop."""
    machine = ready(1)
    machine.create("t", 1)
    half = ",".join(f"{n}:1" for n in range(1000, 4000))
    for value in (half, half.replace(":1", ":2"), "5:5,5:5"):
        (result,) = machine.run(replace(alter(c.CONFIG_APPEND, value, "t"), bounds_lists=False))
        assert result.error is ErrorCode.NONE
    assert machine.image.config(2, "t") == {THROTTLED: f"{half},{half.replace(':1', ':2')},5:5,5:5"}
