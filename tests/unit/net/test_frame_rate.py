"""Which frames come too slowly where the node itself reads so much of them in each turn."""

from __future__ import annotations

import pytest

from kraft.net.connection import FrameProgress
from kraft.net.connections import SWEEP_S
from kraft.net.frame_rate import SOON_S, FrameRate
from kraft.net.read_turns import LEAST_SHARE_BYTES

pytestmark = pytest.mark.row("P7")

MIB = 1024 * 1024
WAITS_S = 0.01


def closed_after(goes_on_s: float, shares: int) -> float | None:
    """When a frame is too slow while memory is short, in seconds. It has a share of each turn, waits for
    `WAITS_S`, and comes to the next one that long after it may go on; in between it has only a part."""
    rate, now, came = FrameRate(), 0.0, 0
    while came < shares * LEAST_SHARE_BYTES:
        came += LEAST_SHARE_BYTES
        rate.is_ahead(now)
        rate.goes_on(now + WAITS_S)
        now += WAITS_S + goes_on_s
        if rate.is_below(MIB, now, FrameProgress(1, came, came), reading=True, contended=True):
            return now
    return None


@pytest.mark.parametrize("goes_on_s", [0.025, 0.05, SOON_S - 0.001])
def test_who_has_more_in_each_turn_is_not_slow(goes_on_s: float):
    """However long the turns are: a request of 60 MB beside a hundred others was closed after 20 s."""
    assert closed_after(goes_on_s, 2000) is None


@pytest.mark.parametrize("goes_on_s", [SOON_S + 0.001, 1.0])
def test_who_lets_turns_go_by_is(goes_on_s: float):
    closed = closed_after(goes_on_s, 2000)
    assert closed is not None
    assert SWEEP_S <= closed <= 2 * SWEEP_S + 1.0
