"""What a command that waits says is missing; nothing, where it is merely slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.cli.notice import missing
from kraft.cli.survey import ControllerView, Survey
from kraft.net.client import Address

ONE, TWO = Address("127.0.0.1", 9092), Address("127.0.0.1", 9093)
LED: Any = SimpleNamespace(leader_id=1)


def metadata(leaders: list[int]) -> Any:
    partitions = [SimpleNamespace(partition_index=i, leader_id=leader) for i, leader in enumerate(leaders)]
    return SimpleNamespace(
        brokers=[SimpleNamespace(node_id=i, host=at.host, port=at.port) for i, at in ((1, ONE), (2, TWO))],
        topics=[SimpleNamespace(name="t", is_internal=False, partitions=partitions)],
    )


def test_nothing_is_said_of_a_cluster_that_is_whole() -> None:
    assert list(missing(Survey({ONE: metadata([1, 2]), TWO: metadata([1, 2])}, quorum=LED))) == []


def test_a_dead_broker_and_its_partitions() -> None:
    found = Survey({ONE: metadata([1, 2, -1])}, {TWO: "refuses connections"}, quorum=LED)
    assert list(missing(found)) == [
        "broker 2 (127.0.0.1:9093) refuses connections",
        "no leader that answers: t-1, t-2",
    ]


def test_a_broker_that_the_controller_does_not_hear() -> None:
    both = {ONE: metadata([1]), TWO: metadata([1])}
    assert list(missing(Survey(both, cut_off=[TWO], quorum=LED))) == [
        "broker 2 (127.0.0.1:9093) answers, but does not reach the active controller"
    ]


def test_a_quorum_without_a_leader() -> None:
    voters = [ControllerView(1, ONE, "", 2, 7), ControllerView(2, TWO, "does not answer")]
    assert list(missing(Survey({ONE: metadata([1])}, controllers=voters))) == [
        "the metadata quorum has no leader that answers",
        "controller 1 (127.0.0.1:9092) says that node 2 leads in epoch 7",
        "controller 2 (127.0.0.1:9093) does not answer",
    ]
    assert list(missing(Survey({ONE: metadata([1])}, quorum_is_hidden=True))) == []
