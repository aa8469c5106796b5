"""What a follower does with its leader's answer. Pure: the log's figures in, an outcome out.

Where the logs diverge is found by leader epochs, never by the high watermark. The follower sends the
epoch of its last record with every fetch; a leader whose log has no such record answers with the
largest epoch it shares and where that ends. The follower truncates there, and asks again: the epoch of
what is then its last record may again be one that the leader does not know.

The high watermark is no safe point to truncate to: a follower learns it one fetch late. If it truncated to
its own after a restart and were then elected, it would have thrown away a committed record. With
`TRUNCATE_TO_HIGH_WATERMARK` that old rule can be had for a look at the damage (tests, chaos).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from fetch.messages import FetchedPartition, LogBounds
from metadata_quorum.foundation.errors import NO_ERROR, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH


@dataclass(frozen=True, slots=True)
class FollowerRules:
    """How a follower finds where to truncate its log."""

    by_epochs: bool

    def last_fetched_epoch(self, latest_epoch: int) -> int:
        """The epoch of its last record, as sent to the leader."""
        return latest_epoch if self.by_epochs else NO_EPOCH

    def initial_truncation_offset(self, high_watermark: int) -> int | None:
        """Where it truncates its log before the first fetch, if it does."""
        return None if self.by_epochs else high_watermark


TRUNCATE_BY_EPOCHS: Final = FollowerRules(by_epochs=True)
TRUNCATE_TO_HIGH_WATERMARK: Final = FollowerRules(by_epochs=False)


class FetchOutcome(Enum):
    """What the leader's answer for one partition asks the follower to do."""

    APPEND = auto()  # append the records (if any), take over high watermark and log start
    DIVERGED = auto()  # truncate: the logs differ before the fetch offset
    OUT_OF_RANGE = auto()  # ask for the leader's bounds: its log starts after the fetch offset or ends before
    WAIT = auto()  # fetch again after a delay


def fetch_outcome(answer: FetchedPartition) -> FetchOutcome:
    """The outcome of a fetch, for one partition."""
    if answer.error == NO_ERROR:
        return FetchOutcome.APPEND if answer.diverging_epoch is None else FetchOutcome.DIVERGED
    if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchOutcome.OUT_OF_RANGE
    return FetchOutcome.WAIT


def truncation_offset(diverging: tuple[int, int], local: tuple[int, int], log_end: int) -> int:
    """Where to truncate. `diverging` is the leader's largest shared epoch and where it ends there; `local`
    is our largest epoch not above that, and where it ends here ((-1, -1): we know none)."""
    leader_epoch, leader_end = diverging
    local_epoch, local_end = local
    if local_epoch == NO_EPOCH:
        return min(leader_end, log_end)
    if local_epoch != leader_epoch:
        # We have nothing of that epoch. What we have of older ones may still differ; ask again.
        return min(local_end, log_end)
    return min(local_end, leader_end, log_end)


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """The leader's log is shorter than ours."""

    offset: int


@dataclass(frozen=True, slots=True)
class RestartAt:
    """The leader's log begins beyond our end: nothing of ours is of use."""

    offset: int


def resolve_out_of_range(log_end: int, leader: LogBounds) -> TruncateTo | RestartAt | None:
    """After OFFSET_OUT_OF_RANGE; None where the leader's bounds contain our end by now."""
    if leader.end < log_end:
        return TruncateTo(leader.end)
    if leader.start > log_end:
        return RestartAt(leader.start)
    return None


def retry_delay(attempt: int, first: float, last: float, jitter: float) -> float:
    """Seconds to wait before asking again: doubling, with `jitter` (0..1) taking off up to a fifth.

    The first is short: usually the leader is only about to learn that it leads.
    """
    return float(min(first * 2 ** min(attempt, 16), last) * (1 - 0.2 * jitter))
