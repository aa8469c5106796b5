"""How many requests come, what they are answered with, and where their time goes: Kafka's RequestMetrics.

    server_connection: started -> counted; a few per second and API are timed
    RequestTiming: waits in the connection's queue -> its handler runs -> waits (for followers, for data)
                   -> waits for replies before it -> is written

Every request is counted. Of an API with many requests only about `TIMED_PER_S` a second are timed: more say
no more about a quantile, and the others cost nothing. A timing's samples are kept in rings of fixed size.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final

TIMED_PER_S: Final = 100
SAMPLES: Final = 512
"""The newest times that are kept of each phase: as many as a quantile of 0.99 needs."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_MAX_SKIP: Final = 0xFF
"""Enough for a node's 20,000 requests a second; and when they get few again, all are soon timed."""
_MS: Final = 1000.0

FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"


class Phase(IntEnum):
    """The phases of a request, in Kafka's words."""

    REQUEST_QUEUE = 0
    LOCAL = 1
    REMOTE = 2
    THROTTLE = 3
    RESPONSE_QUEUE = 4
    RESPONSE_SEND = 5
    TOTAL = 6


class ApiMetrics:
    """The metrics of one API."""

    __slots__ = ("_last_timed", "_next", "name", "requests", "samples", "skip")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.samples: tuple[array[float], ...] = tuple(array("d") for _ in Phase)
        """The newest timed requests, in ms, by phase."""
        self._next = 0
        self.skip = 0
        """How many requests to skip between two that are timed; a power of two less one."""
        self._last_timed = 0.0

    def adapt(self, now: float) -> None:
        """A request is being timed: decide how many may come before the next one that is."""
        since, self._last_timed = now - self._last_timed, now
        expected = (self.skip + 1) / (since * TIMED_PER_S) if since > 0 else _MAX_SKIP
        self.skip = min((1 << int(expected).bit_length()) - 1, _MAX_SKIP)

    def record(self, ms: list[float]) -> None:
        """Note the times of one request, by phase."""
        place = self._next
        self._next = (place + 1) % SAMPLES
        for phase, value in enumerate(ms):
            samples = self.samples[phase]
            if place == len(samples):
                samples.append(value)
            else:
                samples[place] = value

    def quantiles(self, phase: Phase) -> list[float]:
        """How many ms the newest timed requests took, for each of `QUANTILES`."""
        ordered = sorted(self.samples[phase])
        last = len(ordered) - 1
        return [ordered[round(q * last)] if ordered else 0.0 for q in QUANTILES]


class RequestTiming:
    """One request that is timed."""

    __slots__ = ("_apis", "_at", "_ms", "_stopwatch")

    def __init__(self, api: ApiMetrics, arrived: float, now: float, stopwatch: Callable[[], float]) -> None:
        self._apis = [api]
        self._stopwatch = stopwatch
        self._ms = [0.0] * len(Phase)
        self._ms[Phase.REQUEST_QUEUE] = max(now - arrived, 0.0) * _MS
        self._at = now

    def also(self, api: ApiMetrics) -> None:
        self._apis.append(api)

    def throttled(self, pause_s: float) -> None:
        self._ms[Phase.THROTTLE] = pause_s * _MS

    def end(self, phase: Phase) -> None:
        """The request has been in `phase` since the phase before ended."""
        now = self._stopwatch()
        self._ms[phase] = (now - self._at) * _MS
        self._at = now

    def sent(self) -> None:
        self.end(Phase.RESPONSE_SEND)
        self._ms[Phase.TOTAL] = sum(self._ms)
        for api in self._apis:
            api.record(self._ms)


class RequestMetrics:
    """The request metrics of one node, by API."""

    def __init__(
        self, names: Mapping[int, str] | None = None, stopwatch: Callable[[], float] = float
    ) -> None:
        """`names`: of the APIs, by their keys. `stopwatch`: seconds, finely enough to measure one request."""
        self.stopwatch = stopwatch
        self._by_key = {int(key): ApiMetrics(name) for key, name in (names or {}).items()}
        self.fetch_consumer = ApiMetrics(FETCH_CONSUMER)
        self.fetch_follower = ApiMetrics(FETCH_FOLLOWER)
        self.errors: dict[tuple[str, str], int] = {}
        """Refused partitions and whole requests, by API and error."""

    def __iter__(self) -> Iterator[ApiMetrics]:
        """The APIs that have been called."""
        for api in (*self._by_key.values(), self.fetch_consumer, self.fetch_follower):
            if api.requests:
                yield api

    def started(self, api_key: int, arrived: float) -> RequestTiming | None:
        """Count a request that starts now; what is to be told of its progress, where it is timed."""
        api = self._by_key.get(api_key)
        if api is None:
            return None
        api.requests += 1
        if api.requests & api.skip:
            return None
        now = self.stopwatch()
        api.adapt(now)
        return RequestTiming(api, arrived, now, self.stopwatch)

    def enclosed(self, api_key: int) -> None:
        """Count a request that has come inside another; only the outer one is timed."""
        api = self._by_key.get(api_key)
        if api is not None:
            api.requests += 1

    def refused(self, api: str, error: str) -> None:
        self.errors[api, error] = self.errors.get((api, error), 0) + 1
