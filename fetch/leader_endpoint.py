"""The port through which a follower reaches a leader. kraft/peers/leader_endpoint.py implements it over a
socket, the tests in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from fetch.messages import FetchRequest, FetchResponse, LogBounds


class LeaderEndpoint(Protocol):
    """One leader, as one fetcher sees it. Requests are sent in the order of the calls, and answered in that
    order. Failures of the connection raise OSError or TimeoutError; the next call connects again.
    tests/contract/test_leader_endpoint.py holds implementations to this."""

    def fetch(self, request: FetchRequest) -> Awaitable[FetchResponse]:
        """The request is on its way when this returns (a future) or as soon as the loop turns (a
        coroutine is made a task)."""

    def log_bounds(self, topic: str, partition: int, current_leader_epoch: int) -> Awaitable[LogBounds]:
        """Where the leader's log begins and ends, at one moment. It is asked when `fetch` would be sent, and
        what is fetched behind it does not hold up its answer: a log whose beginning moves on is soon another.
        Raises BrokerError if the leader refuses."""

    def close(self) -> None:
        """Drop the connection."""
