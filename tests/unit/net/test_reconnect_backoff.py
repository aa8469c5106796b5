"""A connection that does not hold is dialled less and less often; one that held, at once."""

from __future__ import annotations

import random

from kraft.net.reconnect_backoff import FIRST_S, LAST_S, ReconnectBackoff


def test_who_accepts_and_hangs_up_is_not_dialled_without_end():
    redial = ReconnectBackoff(random.Random(1))
    pauses = [redial.pause_s(held_s=0.001) for _ in range(20)]
    assert pauses[0] < 0.1
    assert all(LAST_S / 2 <= pause <= LAST_S * 1.5 for pause in pauses[10:])
    assert redial.pause_s(held_s=60.0) <= FIRST_S * 1.5
