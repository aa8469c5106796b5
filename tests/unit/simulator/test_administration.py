"""What an administrator was acknowledged holds in the end; where it does not, the run is accused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chaos.history import ACKS_ALL, TopicMode
from chaos.simulator.clients.settings import Setting
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Outcome, Simulation
from data_plane.replication.partition import Partition
from metadata_quorum.controller.controller import QuorumController

pytestmark = pytest.mark.heavy


def test_what_was_not_answered_may_be_carried_out_at_any_later_time() -> None:
    setting = Setting[int]()
    assert setting.possible == set()
    setting.ask(3)
    setting.ask(4)
    setting.answered(4, is_done=True)
    assert (setting.acknowledged, setting.possible) == (4, {3, 4})
    setting.ask(5)
    setting.answered(5, is_done=False)
    assert setting.possible == {3, 4}


def test_what_was_asked_for_twice_and_answered_once_may_be_carried_out_yet() -> None:
    setting = Setting(2)
    setting.ask(3)
    setting.ask(3)
    setting.answered(3, is_done=True)
    setting.ask(4)
    setting.answered(4, is_done=True)
    assert setting.possible == {3, 4}


Mutant = Callable[[pytest.MonkeyPatch], None]


def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pass


def only_looks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the controller is asked to do it answers as if it had been asked whether it could."""
    does = getattr(QuorumController, name)

    async def looks(self: QuorumController, *args: Any, **options: Any) -> Any:
        return await does(self, *args, **{**options, "validate_only": True})

    monkeypatch.setattr(QuorumController, name, looks)


def partitions_are_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    only_looks("create_partitions", monkeypatch)


def values_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    only_looks("incremental_alter_configs", monkeypatch)


def one_broker_takes_up_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    configure = Partition.configure

    def deaf(self: Partition, *args: Any) -> None:
        if self._context.broker_id != 5:
            configure(self, *args)

    monkeypatch.setattr(Partition, "configure", deaf)


def played() -> Outcome:
    profile = replace(PROFILES["changing"], topics={"all": TopicMode(1, ACKS_ALL)}, topic_configs={})
    return Simulation(16, profile, 12.0, faults=[]).run()


@pytest.mark.pure("a bug is planted in Python")
@pytest.mark.parametrize(
    ("mutant", "rules"),
    [
        (as_it_is, set()),
        (partitions_are_not_created, {"administration"}),
        (values_are_not_kept, {"administration"}),
        (one_broker_takes_up_no_value, {"configuration"}),
    ],
)
def test_what_was_acknowledged_holds(
    mutant: Mutant, rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    outcome = played()
    assert {"config", "partitions created", "preferred election"} <= outcome.story.visited.keys()
    assert {violation.rule for violation in outcome.violations} == rules
