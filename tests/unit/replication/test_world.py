"""The simulated partition from seeds; what leader epochs are for, side by side; and proof that the
checks see what they are there to see: every rule that is taken away is missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.sim.replication_schedules import classic_schedule, run_seed
from chaos.sim.replication_world import ReplicationWorld
from data_plane.replication.leader_state import LeaderState
from fetch.follower import TRUNCATE_BY_EPOCHS, TRUNCATE_TO_HIGH_WATERMARK
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation

MORE = pytest.mark.long  # the same with other seeds


def violation(run: Callable[[], ReplicationWorld]) -> Invariant | str | None:
    """The invariant that broke, `lost` where a record is gone, or None."""
    try:
        world = run()
    except InvariantViolation as e:
        return e.invariant
    return "lost" if world.lost() else None


@pytest.mark.row("R5", "R2")
@pytest.mark.parametrize("block", [0, 1, *(pytest.param(block, marks=MORE) for block in range(2, 5))])
def test_random_schedules_lose_nothing(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        world = run_seed(seed)
        assert world.lost() == [], seed


@pytest.mark.row("Q11", "R2")
@pytest.mark.parametrize("block", [0, pytest.param(1, marks=MORE), pytest.param(2, marks=MORE)])
def test_a_partition_that_moves_about_loses_nothing(block: int) -> None:
    moved = 0
    for seed in range(block * 30, block * 30 + 30):
        world = run_seed(seed, spare=2)
        assert world.lost() == [], seed
        moved += set(world.controller.registration.replicas) != {1, 2, 3}
    assert moved > 15


@pytest.mark.row("R5")
def test_the_classic_schedule_with_and_without_leader_epochs() -> None:
    world = classic_schedule(TRUNCATE_BY_EPOCHS)
    assert world.acked == {b"v1": 0}
    assert world.lost() == []
    assert (
        violation(lambda: classic_schedule(TRUNCATE_TO_HIGH_WATERMARK)) is Invariant.HIGH_WATERMARK_MONOTONIC
    )


@pytest.mark.row("R5")
def test_random_schedules_without_leader_epochs_lose_records() -> None:
    assert any(violation(lambda s=seed: run_seed(s, TRUNCATE_TO_HIGH_WATERMARK)) for seed in range(60))


def no_maximal_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer counts only when the controller has answered."""
    original = LeaderState.expand

    def expand(self, follower, high_watermark):
        change = original(self, follower, high_watermark)
        if change is not None:
            follower.in_maximal_isr = False
        return change

    monkeypatch.setattr(LeaderState, "expand", expand)
    monkeypatch.setattr(LeaderState, "maximal_isr", property(lambda self: self.isr))
    no_waiting_for_joiners(monkeypatch)


def no_waiting_for_joiners(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark is the least of the ISR alone."""

    def high_watermark(self, current, leader_end, now, own_end):
        if self.under_min_isr:
            return current
        members = [f.log_end_offset for f in self.followers.values() if f.in_maximal_isr]
        return max(current, min([own_end, *members]))

    monkeypatch.setattr(LeaderState, "high_watermark", high_watermark)


def shrinks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaver stops counting when its leaving is proposed."""
    original = LeaderState.shrink

    def shrink(self, leader_end, now):
        change = original(self, leader_end, now)
        if change is not None:
            for follower in self.followers.values():
                follower.in_maximal_isr = follower.broker_id in change.isr
        return change

    monkeypatch.setattr(LeaderState, "shrink", shrink)


def joins_without_the_epochs_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower joins the ISR at the high watermark, though it lacks records of older epochs."""
    original = LeaderState.expand

    def expand(self, follower, high_watermark):
        kept, self.epoch_start_offset = self.epoch_start_offset, 0
        try:
            return original(self, follower, high_watermark)
        finally:
            self.epoch_start_offset = kept

    monkeypatch.setattr(LeaderState, "expand", expand)


def no_divergence_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader believes that whoever has an offset has the same record there."""

    def check(replica, fetch_offset, last_fetched_epoch):
        if fetch_offset > replica.log.log_end_offset:
            replica.refuse_offset(fetch_offset)
        return

    monkeypatch.setattr("fetch.reader.diverging_epoch", check)


def by_leader_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower truncates at the leader's end of an epoch, whatever its own is."""
    monkeypatch.setattr(
        "fetch.fetcher.truncation_offset", lambda diverging, local, end: min(diverging[1], end)
    )


@pytest.mark.pure("a rule is taken away in Python")
@pytest.mark.parametrize(
    "mutation",
    [no_maximal_isr, shrinks_at_once, no_divergence_check, by_leader_end],
)
def test_a_rule_that_is_taken_away_is_missed(mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)

    def caught(seed: int) -> bool:
        try:
            return violation(lambda: run_seed(seed)) is not None
        except AssertionError:  # it did not converge
            return True

    assert any(caught(seed) for seed in range(150))


def joins_before_the_epochs_start() -> ReplicationWorld:
    """2 takes over with a record that is acknowledged and a high watermark that does not cover it yet.
    3, which lacks the record, has reached that high watermark. It must not join the ISR by it."""
    world = ReplicationWorld()
    world.fence(3)
    world.publish_all()
    world.produce(1)
    world.fetch(2)
    world.ask(2)  # 1 hears that 2 has the record; 2 does not hear of the high watermark
    world.crash(1)
    world.fence(1)
    world.unfence(3)
    world.publish(2)
    world.publish(3)
    world.ask(3)  # from offset 0, which is 2's high watermark
    world.answer_isr(2)
    world.crash(2)
    world.fence(2)
    world.publish(3)
    world.heal()
    return world


@pytest.mark.row("R3", "R5")
@pytest.mark.pure("a rule is taken away in Python")
def test_a_follower_joins_only_from_the_epochs_start_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert joins_before_the_epochs_start().lost() == []
    joins_without_the_epochs_start(monkeypatch)
    assert violation(joins_before_the_epochs_start) is not None
