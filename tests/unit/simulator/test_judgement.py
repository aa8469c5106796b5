"""What a simulation accuses the cluster of: by histories and by nodes that do what they must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chaos.checker import check
from chaos.history import Header, History, HistoryTransaction, Operation, Poll, Send, TopicMode
from chaos.simulator.faults import SimFault
from chaos.simulator.judgement import judge
from chaos.simulator.profile import COMBINED, PROFILES, Profile
from chaos.simulator.run import Simulation
from data_plane.coordinator.groups.assignment import NOTHING
from data_plane.coordinator.groups.consumer import reconciliation
from data_plane.coordinator.internal_topic import InternalTopic
from data_plane.log.append import AppendInfo
from data_plane.replication.partition import Partition
from metadata_quorum.decisions import brokers
from metadata_quorum.decisions.elections import broker_leaves

ALL = TopicMode(1, -1)
ONE = TopicMode(1, 1)


def broken(
    mode: TopicMode, *operations: Operation, was_elected: tuple[str, ...] = (), resends: bool = False
) -> list[str]:
    """The rules that this history breaks, each once."""
    history = History(Header({"t": mode}), operations)
    rules: list[str] = []
    judge(history, check(history), was_elected, lambda rule, what: rules.append(rule), resends=resends)
    return list(dict.fromkeys(rules))


def send(value: int, offset: int | None, error: str | None = None) -> Operation:
    outcome = "ok" if error is None else "info"
    return Operation(value, "send", value, value, outcome, [Send("t-0", value, offset)], error=error)  # type: ignore[arg-type]


def final_read(*pairs: tuple[int, int]) -> list[Operation]:
    assigned = Operation(99, "assign", 90, 91, "ok", keys=["t-0"], final=True)
    return [assigned, Operation(99, "poll", 92, 93, "ok", [Poll({"t-0": pairs})], final=True)]


def test_what_was_sent_once_is_there_once() -> None:
    assert broken(ALL, send(1, 0), *final_read((0, 1))) == []
    assert check(History(Header({"t": ALL}), [send(1, 0), *final_read((0, 1), (1, 1))])).ok
    assert broken(ALL, send(1, 0), *final_read((0, 1), (1, 1))) == ["duplicate"]
    assert broken(ALL, send(1, 0), *final_read((0, 1), (1, 1)), resends=True) == []
    once = ALL._replace(idempotent=True)
    assert broken(once, send(1, 0), *final_read((0, 1), (1, 1)), resends=True) == ["duplicate"]


def test_at_acks_1_a_record_goes_with_its_leader_only() -> None:
    history = (send(1, 0), send(2, 1), *final_read((0, 1)))
    assert broken(ONE, *history, was_elected=("t-0",)) == []
    assert broken(ONE, *history) == ["unseen"]


def test_no_sequence_number_is_missing() -> None:
    refused = send(2, None, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert broken(ALL, send(1, 0), refused, *final_read((0, 1))) == ["sequence refused"]


def test_no_sequence_number_of_a_transaction_is_missing() -> None:
    refused = Operation(
        2, "txn", 2, 3, "fail", [Send("t-0", 2)], error="Refused: Produce: OUT_OF_ORDER_SEQUENCE_NUMBER",
        txn=HistoryTransaction("id"),
    )  # fmt: skip
    mode = ALL._replace(idempotent=True, transactional=True)
    ends = Operation(99, "ends", 95, 96, "ok", final=True, ends={"t-0": (1, 1)})
    assert broken(mode, send(1, 0), refused, *final_read((0, 1)), ends) == ["sequence refused"]
    deposed = refused._replace(error="Refused: Produce: OUT_OF_ORDER_SEQUENCE_NUMBER of a deposed leader")
    assert broken(mode, send(1, 0), deposed, *final_read((0, 1)), ends) == []


def test_idle_clients_prove_nothing() -> None:
    assert broken(ALL, *final_read()) == ["idle"]
    last_write = send(1, 0)._replace(final=True)
    assert broken(ALL, last_write, *final_read((0, 1))) == ["idle"]
    member = Operation(5, "subscribe", 1, 1, "ok", keys=["t-0"], group="g")
    owned = Operation(5, "owned", 2, 2, "ok", keys=["t-0"], group="g", generation=1)
    committed = Operation(5, "commit", 3, 3, "ok", group="g", generation=1, committed={"t-0": 0})
    told = Operation(5, "committed", 95, 95, "ok", group="g", final=True)
    assert broken(ALL, send(1, 0), member, owned, *final_read((0, 1)), told) == ["idle"]
    assert broken(ALL, send(1, 0), member, owned, committed, *final_read((0, 1)), told) == []


Mutant = Callable[[pytest.MonkeyPatch], None]
SMALL_RUN = replace(COMBINED, topics={"all": ALL}, pause_s=0.3)
GROUP_RUN = replace(PROFILES["groups"], topics={"all": ALL}, members=1)
ONE_AFTER_THE_OTHER = [SimFault.parse("at 2 for 1: kill 1"), SimFault.parse("at 4 for 1: kill 2")]
"""Whatever the seed: a broker is fenced, and coordinators move."""


def a_timer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def maybe_shrink_isr(self: Partition, now: float) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Partition, "maybe_shrink_isr", maybe_shrink_isr)


def a_fenced_broker_stays_in_an_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_one(*args: Any, **options: Any) -> list[Any]:
        return list(broker_leaves(*args, **options))[1:]

    monkeypatch.setattr(brokers, "broker_leaves", all_but_one)


def a_coordinator_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InternalTopic, "bounds", lambda self, partition: (0, 0))


def a_partition_takes_no_write(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Partition.append_as_leader

    def append_elsewhere(self: Partition, *args: Any, **options: Any) -> AppendInfo:
        if str(self.tp) == "all-1":
            self.refuse_as_not_leader()
        return append(self, *args, **options)

    monkeypatch.setattr(Partition, "append_as_leader", append_elsewhere)


def members_are_given_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "assignment_of", lambda partitions: NOTHING)


@pytest.mark.pure("a bug is planted in Python")
@pytest.mark.parametrize(
    ("mutant", "profile", "rule"),
    [
        (a_timer_fails, SMALL_RUN, "unexpected error"),
        (a_fenced_broker_stays_in_an_isr, SMALL_RUN, "ISR_ALIVE"),
        (a_coordinator_loads_nothing, GROUP_RUN, "coordinator"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mutant_that_no_client_notices_is_found(
    mutant: Mutant, profile: Profile, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    run = Simulation(3, profile, 6.0, until=6.0, faults=ONE_AFTER_THE_OTHER).run()
    assert rule in {violation.rule for violation in run.violations}


@pytest.mark.long
@pytest.mark.pure("a bug is planted in Python")
def test_a_partition_that_takes_no_write_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic has acks, of another one; the metadata is whole, and all that is there was read."""
    a_partition_takes_no_write(monkeypatch)
    two = replace(SMALL_RUN, topics={"all": ALL._replace(partitions=2)})
    assert [violation.rule for violation in Simulation(3, two, 5.0).run().violations] == ["last write"]


@pytest.mark.long
@pytest.mark.pure("a bug is planted in Python")
def test_a_group_that_is_given_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    members_are_given_nothing(monkeypatch)
    rules = {violation.rule for violation in Simulation(1, PROFILES["groups"], 5.0).run().violations}
    assert {"recovery: groups", "idle"} <= rules
