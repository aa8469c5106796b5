"""Who may be replaced by a new incarnation while the controller has only just taken over."""

from __future__ import annotations

import pytest

from metadata_quorum.controller.broker_sessions import BrokerSessions

TIMEOUT_S, GRACE_S = 9.0, 0.2


@pytest.fixture
def sessions() -> BrokerSessions:
    return BrokerSessions(TIMEOUT_S, GRACE_S)


def test_one_that_shows_nothing_is_believed_for_the_grace_only(sessions):
    sessions.begin({1: 5}, now=10.0, offset=0)
    assert sessions.valid(1, 10.0 + GRACE_S / 2)
    assert not sessions.valid(1, 10.0 + GRACE_S)
    # It is not fenced for that: its heartbeats may be on their way.
    assert sessions.stalest([1], 10.0 + GRACE_S) is None


def test_a_link_or_a_heartbeat_speaks_for_it(sessions):
    sessions.connection_up(1, broker_epoch=5, number=0)
    sessions.begin({1: 5, 2: 6}, now=10.0, offset=0)
    sessions.touch(2, now=10.1, metadata_offset=0)
    for broker_id in (1, 2):
        assert sessions.valid(broker_id, 10.0 + TIMEOUT_S - 0.1)
        assert not sessions.valid(broker_id, 10.2 + TIMEOUT_S)
