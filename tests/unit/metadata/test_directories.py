"""Log directories: what fails with one of them, and who comes back on a new one."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from metadata_quorum.decisions.table import decide
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import LOST_DIR, NO_LEADER, BrokerRegistration, LeaderRecoveryState
from metadata_quorum.metadata.records import EndpointField
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol.commands import AssignReplicasToDirs
from metadata_quorum.protocol.replies import DirectoryResult, IsrResult
from tests.support.metadata_machine import MetadataMachine

NEW = 8


def directory(broker: int, number: int) -> UUID:
    return UUID(int=1000 * broker + number)


def ready(*, elr: bool = True, min_insync: int = 1) -> MetadataMachine:
    """Three brokers with two directories each; partition 0 of `t` is in their first, 1 in their second."""
    machine = MetadataMachine()
    machine.claim(elr=elr, min_insync=min_insync)
    for broker in (1, 2, 3):
        machine.register(broker, log_dirs=(directory(broker, 0), directory(broker, 1)))
        machine.unfence(broker)
    machine.create_assigned("t", [(1, 2, 3), (1, 2, 3)])
    for broker in (1, 2, 3):
        for partition in (0, 1):
            machine.assign_dir(broker, "t", directory(broker, partition), partition)
    return machine


@pytest.mark.row("L8")
def test_only_what_lies_in_the_failed_directory_moves() -> None:
    machine = ready()
    before = machine.partition("t", 1)
    machine.fail_dirs(1, directory(1, 0))
    lost = machine.partition("t", 0)
    assert (lost.leader, lost.isr) == (2, (2, 3))
    assert machine.partition("t", 1) == before
    assert not machine.image.brokers[1].fenced
    assert machine.image.brokers[1].log_dirs == (directory(1, 1),)
    end = machine.image.offset
    machine.fail_dirs(1, directory(1, 0))  # every heartbeat names it again
    assert machine.image.offset == end


@pytest.mark.row("L8")
def test_a_replica_that_its_broker_has_given_up_leads_no_longer() -> None:
    machine = ready()
    machine.assign_dir(1, "t", LOST_DIR)
    lost = machine.partition("t", 0)
    assert (lost.leader, lost.isr) == (2, (2, 3))
    machine.assign_dir(2, "t", LOST_DIR)
    machine.assign_dir(3, "t", LOST_DIR)
    assert machine.partition("t", 0).leader == NO_LEADER
    machine.assign_dir(3, "t", directory(3, 0))  # it has restarted
    assert machine.partition("t", 0).leader == 3


@pytest.mark.row("L8")
@pytest.mark.parametrize("directory_is_gone", [True, False])
def test_a_replica_that_was_given_up_is_eligible_as_long_as_its_directory_is_there(
    directory_is_gone: bool,
) -> None:
    machine = ready(min_insync=2)
    machine.fence(3)
    machine.assign_dir(2, "t", LOST_DIR)
    assert machine.partition("t").elr == (2,)
    machine.fence(1)
    machine.fence(2)
    # Its broker notices that; the controller cannot.
    previous = -1 if directory_is_gone else machine.epoch(2)
    back = directory(2, 1) if directory_is_gone else directory(2, 0)
    machine.register(2, incarnation=2, previous=previous, log_dirs=(back,))
    machine.unfence(2)
    machine.assign_dir(2, "t", back)
    assert machine.partition("t").leader == (NO_LEADER if directory_is_gone else 2)


@pytest.mark.row("L8")
def test_who_lost_the_last_directory_stays_fenced() -> None:
    machine = ready()
    lost = directory(1, 0), directory(1, 1)
    for _ in range(2):  # every heartbeat says it again
        machine.fail_dirs(1, *lost)
        machine.unfence(1)
        assert machine.image.brokers[1].fenced
        assert not any(machine.image.can_serve(1, p) for _, _, p in machine.image.each_partition())
    copy = MetadataMachine()
    copy.machine.restore(machine.machine.snapshot()(), machine.index, machine.term)()
    assert not copy.image.brokers[1].has_any_dir
    machine.register(1, incarnation=2, log_dirs=(directory(1, NEW),))
    machine.unfence(1)
    assert not machine.image.brokers[1].fenced


@pytest.mark.row("L8")
def test_nobody_is_in_sync_or_leads_from_a_failed_directory() -> None:
    machine = ready()
    machine.fail_dirs(1, directory(1, 0))
    (refused,) = machine.alter(2, machine.isr_change("t", (1, 2, 3)))
    assert isinstance(refused, IsrResult)
    assert refused.error is ErrorCode.INELIGIBLE_REPLICA
    machine.fence(3)
    machine.fence(2)
    assert machine.partition("t", 0).leader == NO_LEADER
    assert machine.partition("t", 1).leader == 1


@pytest.mark.row("L8")
@pytest.mark.parametrize("elr", [True, False])
def test_a_healed_directory_is_back_with_the_next_registration(elr: bool) -> None:
    machine = ready(elr=elr)
    machine.fence(3)
    machine.fence(2)
    machine.fail_dirs(1, directory(1, 0))
    assert machine.partition("t", 0).leader == NO_LEADER
    machine.fence(1)
    previous = machine.epoch(1)
    dirs = (directory(1, 0), directory(1, 1))
    machine.register(1, incarnation=2, previous=previous, log_dirs=dirs)
    machine.unfence(1)
    assert machine.partition("t", 0).leader == 1


@pytest.mark.row("L8")
def test_a_replaced_disk_serves_once_its_replicas_are_assigned_to_it() -> None:
    machine = ready()
    machine.fence(1)
    machine.register(1, incarnation=2, log_dirs=(directory(1, NEW), directory(1, 1)))
    machine.unfence(1)
    (refused,) = machine.alter(2, machine.isr_change("t", (1, 2, 3)))
    assert refused.error is ErrorCode.INELIGIBLE_REPLICA
    machine.assign_dir(1, "t", directory(1, NEW))
    assert machine.partition("t").directories == (directory(1, NEW), directory(2, 0), directory(3, 0))
    (joined,) = machine.alter(2, machine.isr_change("t", (1, 2, 3)))
    assert set(joined.isr) == {1, 2, 3}


@pytest.mark.row("L8")
def test_a_replica_assigned_to_a_failed_directory_leaves_the_isr() -> None:
    machine = ready()
    machine.create_assigned("late", [(1, 2)])
    machine.fail_dirs(1, directory(1, 0))  # before the controller knew that `late` is in it
    assert machine.partition("late").leader == 1
    machine.assign_dir(1, "late", directory(1, 0))
    assert (machine.partition("late").leader, machine.partition("late").isr) == (2, (2,))


@pytest.mark.row("L8")
def test_without_any_directory_the_broker_is_fenced() -> None:
    machine = ready()
    machine.fail_dirs(1, directory(1, 0), directory(1, 1))
    assert machine.image.brokers[1].fenced
    assert {machine.partition("t", p).leader for p in (0, 1)} == {2}


@pytest.mark.row("L8")
def test_assignments_are_judged_for_themselves() -> None:
    machine = ready()
    machine.create_assigned("elsewhere", [(2, 3)])
    (result,) = machine.assign_dir(1, "elsewhere", directory(1, 0))
    assert isinstance(result, DirectoryResult)
    assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    (again,) = machine.assign_dir(1, "t", directory(1, 0))
    assert again.error is ErrorCode.NONE
    (unknown,) = machine.assign_dir(1, "t", directory(1, 0), 17)
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    machine.fence(1)
    stale = machine.epoch(1)
    machine.register(1, incarnation=2)
    with pytest.raises(BrokerError) as refused:
        machine.run(AssignReplicasToDirs(broker_id=1, broker_epoch=stale, assignments=()))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def alone_in_sync() -> MetadataMachine:
    """Broker 2 alone in sync of (2, 3, 1), 3 eligible; then its first directory fails."""
    machine = ready()
    machine.set_config(2, "t", "min.insync.replicas", "2")
    move = c.Reassignment(topic="t", partition=0, replicas=(2, 3, 1))
    machine.run(c.AlterReassignments(reassignments=(move,)))
    machine.fence(1)
    machine.fence(3)
    machine.fail_dirs(2, directory(2, 0))
    partition = machine.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (2, 3))
    return machine


@pytest.mark.row("L8")
def test_who_makes_a_replica_anew_elsewhere_has_nothing_that_others_could_lose() -> None:
    """Its directory is gone, and all that is left of the broker is as it was: a clean restart."""
    machine = alone_in_sync()
    machine.fence(2)
    machine.register(2, incarnation=2, previous=machine.epoch(2), log_dirs=(directory(2, 1),))
    machine.unfence(2)
    assert machine.partition("t").leader == NO_LEADER
    machine.assign_dir(2, "t", directory(2, 1))
    partition = machine.partition("t")
    assert (partition.leader, partition.elr) == (NO_LEADER, (3,)), "led by an empty replica"
    machine.unfence(3)
    assert machine.partition("t").leader == 3
    assert machine.partition("t").leader_recovery_state == LeaderRecoveryState.RECOVERED


@pytest.mark.row("L8")
def test_the_only_replica_that_is_made_anew_leads_and_has_to_recover() -> None:
    machine = ready()
    machine.create_assigned("one", [(1,)])
    machine.assign_dir(1, "one", directory(1, 0))
    machine.fail_dirs(1, directory(1, 0))
    machine.fence(1)
    machine.register(1, incarnation=2, previous=machine.epoch(1), log_dirs=(directory(1, 1),))
    machine.unfence(1)
    machine.assign_dir(1, "one", directory(1, 1))
    partition = machine.partition("one")
    assert (partition.leader, partition.leader_recovery_state) == (1, LeaderRecoveryState.RECOVERING)


@pytest.mark.row("L8")
def test_a_replica_that_moves_between_two_directories_stays_eligible() -> None:
    machine = alone_in_sync()
    machine.assign_dir(3, "t", directory(3, 1))
    assert machine.partition("t").elr == (2, 3)


@pytest.mark.row("L8")
@pytest.mark.parametrize("unclean", ["true", "false"])
@pytest.mark.parametrize("moved", [True, False])
def test_who_comes_onto_a_disk_or_into_a_partition_leads_it_where_that_may_be_unclean(
    moved: bool, unclean: str
) -> None:
    machine = alone_in_sync()
    machine.fence(2)
    machine.fail_dirs(1, directory(1, 0))
    machine.unfence(1)
    machine.set_config(2, "t", "unclean.leader.election.enable", unclean)
    assert machine.partition("t").leader == NO_LEADER
    if moved:
        machine.brokers(4)
        move = c.Reassignment(topic="t", partition=0, replicas=(4,))
        machine.run(c.AlterReassignments(reassignments=(move,), may_be_unclean=True))
    else:
        machine.assign_dir(1, "t", directory(1, 1))
    leads = 4 if moved else 1
    assert machine.partition("t").leader == (leads if unclean == "true" else NO_LEADER)


def test_directories_are_not_compared_each_with_each() -> None:
    """Commands that are in the log are decided again at every start."""
    machine, many, compared = ready(), 500, 0

    class Counted(UUID):
        __hash__ = UUID.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return UUID.__eq__(self, other)

    def register(broker: int) -> None:
        directories = tuple(Counted(int=1_000_000 * broker + number) for number in range(many))
        command = c.RegisterBroker(
            broker_id=broker,
            incarnation_id=UUID(int=broker),
            endpoints=(EndpointField(name="P", host="h", port=1, security_protocol=0),),
            log_dirs=directories,
        )
        decide(machine.image, command)
        known = BrokerRegistration(broker, 1, UUID(int=broker), log_dirs=directories)
        machine.machine.image = replace(machine.image, brokers={**machine.image.brokers, broker: known})

    for broker in (4, 5):
        register(broker)
    lost = machine.image.brokers[5].log_dirs
    decide(machine.image, c.FailLogDirs(broker_id=5, broker_epoch=1, offline=lost))
    assert compared < 10 * many
