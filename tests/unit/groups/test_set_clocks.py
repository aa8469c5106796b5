"""A coordinator whose wall clock is set."""

from __future__ import annotations

import pytest

from data_plane.coordinator.groups.consumer.rebalance import patterns_are_old
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import ConsumerGroupState
from data_plane.coordinator.groups.consumer_records import ResolvedRegex
from data_plane.coordinator.state_machine import Instant
from tests.unit.groups.group_driver import EPOCH_MS

RULES = ConsumerGroupConfig()
INTERVAL_MS = RULES.regex_refresh_interval_ms


@pytest.mark.parametrize(
    ("set_by_ms", "old"),
    [(0, False), (INTERVAL_MS - 1, False), (INTERVAL_MS, True), (-1, True)],
)
def test_what_a_pattern_matched_in_a_time_to_come_is_looked_up_again(set_by_ms: int, old: bool) -> None:
    """A member kept seeing, for as long as the clock had been ahead, what it may see no more."""
    state = ConsumerGroupState()
    state.regexes["a.*"] = ResolvedRegex(("a",), 0, EPOCH_MS)
    assert patterns_are_old(state, RULES, Instant(0.0, EPOCH_MS + set_by_ms)) is old
