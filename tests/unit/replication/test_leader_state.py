"""The rules of replication/leader_state.py, one by one."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.replication.leader_state import (
    AlterPartitionResult,
    FetchClock,
    IsrOutcome,
    LeaderState,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import PartitionRegistration

LAG = 10.0


def leader(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    min_insync: int = 1,
    epoch_start: int = 0,
    eligible: dict | None = None,
) -> LeaderState:
    return LeaderState(
        1,
        PartitionRegistration((1, 2, 3), isr, 1, 5, 9),
        epoch_start_offset=epoch_start,
        eligible={1: 11, 2: 12, 3: 13} if eligible is None else eligible,
        min_insync=min_insync,
        lag_time_max=LAG,
        now=100.0,
    )


def fetched(state: LeaderState, broker_id: int, offset: int, end: int, now: float = 100.0) -> None:
    follower = state.followers[broker_id]
    follower.fetched(offset, 0, end, now)
    follower.broker_epoch = 10 + broker_id
    follower.clock = FetchClock(now)


@pytest.mark.row("R2")
def test_the_high_watermark_is_the_least_offset_of_the_isr_and_never_falls():
    state = leader()
    assert state.high_watermark(0, 10, 100.0, 10) == 0
    fetched(state, 2, 7, 10)
    assert state.high_watermark(0, 10, 100.0, 10) == 0  # 3 has not been heard of in this epoch
    fetched(state, 3, 5, 10)
    assert state.high_watermark(0, 10, 100.0, 10) == 5
    fetched(state, 3, 3, 10)
    assert state.high_watermark(5, 10, 100.0, 10) == 5


@pytest.mark.row("R2")
def test_the_high_watermark_waits_for_a_caught_up_follower_that_may_join():
    state = leader((1, 2))
    fetched(state, 2, 10, 10)
    fetched(state, 3, 8, 8, 95.0)  # was caught up five seconds ago
    assert state.high_watermark(0, 10, 100.0, 10) == 8
    assert state.high_watermark(8, 10, 105.1, 10) == 10  # too long ago by now


def test_the_high_watermark_does_not_wait_for_one_that_may_not_join():
    state = leader((1, 2), eligible={1: 11, 2: 12})
    fetched(state, 2, 10, 10)
    fetched(state, 3, 8, 8)
    assert state.high_watermark(0, 10, 100.0, 10) == 10


@pytest.mark.row("L8")
def test_the_high_watermark_does_not_wait_for_one_whose_directory_has_failed():
    lost, replaced = UUID(int=1003), UUID(int=1004)
    online = {replaced}
    placed = PartitionRegistration((1, 2, 3), (1, 2), 1, 5, 9, directories=(replaced, replaced, lost))
    state = LeaderState(
        1, placed, epoch_start_offset=0, eligible={1: 11, 2: 12, 3: 13},
        online=lambda broker_id, directory: directory in online,
        min_insync=1, lag_time_max=LAG, now=100.0,
    )  # fmt: skip
    fetched(state, 2, 10, 10)
    fetched(state, 3, 8, 8)
    assert state.high_watermark(0, 10, 100.0, 10) == 10
    fetched(state, 3, 10, 10)
    assert state.expand(state.followers[3], 10) is None
    # The answer to a change of ours had this partition epoch, and did not tell the directories.
    state.take_metadata(replace(placed, directories=(replaced,) * 3), 100.0)
    assert state.expand(state.followers[3], 10) is not None


@pytest.mark.row("Q11")
def test_a_leader_learns_of_replicas_that_come_and_go():
    state = leader((1, 2))
    moving = PartitionRegistration(
        (1, 2, 3, 4), (1, 2), 1, 5, state.partition_epoch + 1, adding_replicas=(4,)
    )
    assert state.take_metadata(moving, 100.0)
    fetched(state, 4, 10, 10)
    # The answer to a change of ours had this partition epoch, and named no replicas.
    assert not state.take_metadata(replace(moving, replicas=(1, 2, 4)), 100.0)
    assert state.followers.keys() == {2, 4}
    assert state.followers[4].log_end_offset == 10, "it is still the one that has fetched"
    assert state.replicas == (1, 2, 4)


@pytest.mark.row("R4")
def test_the_high_watermark_stands_still_below_min_insync_replicas():
    state = leader((1,), min_insync=2)
    assert state.high_watermark(3, 10, 100.0, 10) == 3
    single = LeaderState(
        1,
        PartitionRegistration((1,), (1,), 1, 0, 0),
        epoch_start_offset=0,
        eligible={1: 11},
        min_insync=2,
        lag_time_max=LAG,
        now=0.0,
    )
    assert single.high_watermark(3, 10, 0.0, 10) == 10  # no more than there are replicas


@pytest.mark.row("R3")
@pytest.mark.parametrize(
    ("offset", "hw", "epoch_start", "epoch", "joins"),
    [
        (10, 10, 5, 13, True),
        (9, 10, 5, 13, False),  # below the high watermark
        (7, 4, 8, 13, False),  # below the start of the leader's epoch
        (10, 10, 5, 12, False),  # an older incarnation of the broker
        (10, 10, 5, -1, True),  # a broker that does not tell its epoch
    ],
)
def test_who_may_join(offset: int, hw: int, epoch_start: int, epoch: int, joins: bool):
    state = leader((1, 2), epoch_start=epoch_start)
    fetched(state, 3, offset, 10)
    state.followers[3].broker_epoch = epoch
    change = state.expand(state.followers[3], hw)
    assert (change is not None) == joins
    if change is not None:
        assert change.isr == (1, 2, 3)
        assert state.isr_with_epochs(change) == ((1, 11), (2, -1), (3, epoch))
        assert state.maximal_isr == (1, 2, 3)
        assert state.isr == (1, 2)


@pytest.mark.row("R3")
def test_it_is_time_that_counts_not_the_number_of_messages():
    state = leader()
    for broker in (2, 3):
        fetched(state, broker, 0, 0, 100.0)
    assert state.shrink(1_000_000, 109.0) is None
    fetched(state, 2, 1_000_000, 1_000_000, 111.0)
    change = state.shrink(1_000_000, 111.0)
    assert change is not None
    assert change.isr == (1, 2)
    assert state.maximal_isr == (1, 2, 3)
    assert state.shrink(1_000_000, 200.0) is None  # one change at a time
    assert state.expand(state.followers[3], 0) is None


@pytest.mark.row("R3")
def test_a_busy_follower_that_never_quite_reaches_the_end_stays_in_sync():
    state = leader()
    end = 0
    for second in range(60):
        now = 100.0 + second
        fetched(state, 2, end, end + 50, now)  # has all that there was when it asked before
        fetched(state, 3, end + 50, end + 50, now)
        end += 50
        assert state.shrink(end + 50, now) is None


@pytest.mark.row("R3")
def test_a_follower_that_fetches_and_falls_ever_further_behind_is_dropped():
    state = leader()
    changes = []
    for second in range(20):
        now, end = 100.0 + second, 50 * second
        fetched(state, 2, 10 * second, end, now)
        fetched(state, 3, end, end, now)
        changes.append(state.shrink(end, now))
    (change,) = (each for each in changes if each is not None)
    assert change.isr == (1, 3)


@pytest.mark.row("R3")
def test_an_idle_follower_was_caught_up_when_its_session_last_fetched():
    state = leader()
    for broker in (2, 3):
        fetched(state, broker, 10, 10, 100.0)
    clock = state.followers[2].clock
    assert clock is not None
    clock.last_fetch = 490.0  # of broker 2 only, without naming the partition
    assert state.shrink(10, 500.0) is None
    state.appended(10, 500.0)
    change = state.shrink(11, 500.0)
    assert change is not None
    assert change.isr == (1, 2)


@pytest.mark.parametrize(
    ("error", "outcome", "maximal"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, IsrOutcome.ROLLED_BACK, (1, 2)),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, IsrOutcome.ROLLED_BACK, (1, 2)),
        (ErrorCode.INVALID_UPDATE_VERSION, IsrOutcome.LEFT_PENDING, (1, 2, 3)),
        (ErrorCode.FENCED_LEADER_EPOCH, IsrOutcome.LEFT_PENDING, (1, 2, 3)),
        (ErrorCode.INVALID_REQUEST, IsrOutcome.LEFT_PENDING, (1, 2, 3)),
        (ErrorCode.NOT_CONTROLLER, IsrOutcome.ASK_AGAIN, (1, 2, 3)),
        (ErrorCode.REQUEST_TIMED_OUT, IsrOutcome.ASK_AGAIN, (1, 2, 3)),
        (ErrorCode.UNKNOWN_SERVER_ERROR, IsrOutcome.ASK_AGAIN, (1, 2, 3)),
    ],
)
def test_how_an_answer_is_taken(error: ErrorCode, outcome: IsrOutcome, maximal: tuple[int, ...]):
    state = leader((1, 2))
    fetched(state, 3, 10, 10)
    change = state.expand(state.followers[3], 10)
    assert change is not None
    assert state.handle_response(change, AlterPartitionResult(error)) is outcome
    assert state.maximal_isr == maximal
    # Metadata settles it in any case.
    state.take_metadata(PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 5, 10), 100.0)
    assert (state.change, state.isr, state.partition_epoch) == (None, (1, 2, 3), 10)
    assert state.handle_response(change, AlterPartitionResult(ErrorCode.NONE)) is IsrOutcome.IGNORED


def test_an_older_answer_or_metadata_is_no_news():
    state = leader((1, 2))
    fetched(state, 3, 10, 10)
    change = state.expand(state.followers[3], 10)
    assert change is not None
    old = AlterPartitionResult(ErrorCode.NONE, 1, 5, (1,), 8)
    assert state.handle_response(change, old) is IsrOutcome.IGNORED
    other_epoch = AlterPartitionResult(ErrorCode.NONE, 1, 6, (1,), 20)
    assert state.handle_response(change, other_epoch) is IsrOutcome.IGNORED
    assert not state.take_metadata(PartitionRegistration((1, 2, 3), (1,), 1, 5, 9), 100.0)
    assert state.change is change
    fresh = AlterPartitionResult(ErrorCode.NONE, 1, 5, (1, 2, 3), 10)
    assert state.handle_response(change, fresh) is IsrOutcome.COMMITTED
    assert state.isr == (1, 2, 3)


def test_a_follower_proposed_after_its_fetch_must_be_alive():
    eligible = {1: 11, 2: 12}
    state = leader((1, 2), eligible=eligible)
    fetched(state, 3, 10, 10)
    assert state.expand_any(10, 100.0) is None  # still fenced
    eligible[3] = 13
    assert state.expand_any(10, 100.0 + LAG + 1) is None  # it has not fetched for long
    change = state.expand_any(10, 101.0)
    assert change is not None
    assert change.joining == 3


def test_a_fetch_of_an_earlier_incarnation_is_refused():
    state = leader()
    fetched(state, 2, 7, 10)
    assert state.fetching_follower(2, 12) is state.followers[2]
    assert state.fetching_follower(2, -1) is state.followers[2]
    with pytest.raises(BrokerError) as refused:
        state.fetching_follower(2, 11)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
