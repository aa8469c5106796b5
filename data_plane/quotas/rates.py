"""How fast something goes: the two meters that quotas are judged by, as Apache Kafka counts.

    SampledRate   the mean over `samples` windows; what exceeds a limit tells how long to pause
    TokenBucket   a credit that grows with time up to a burst; used where one request may cost much at once

Pure: seconds come in with every call. Nothing is kept that does not matter: a meter that was left alone
for `QuotaWindow.span_s` is as good as a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIN_SPAN_S: Final = 0.001
"""What a rate is divided by at least."""


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """What a rate is measured over: quota.window.num samples of quota.window.size.seconds each."""

    samples: int = 11
    """Ten whole ones, and the one that is being filled."""
    sample_s: float = 1.0

    @property
    def span_s(self) -> float:
        return self.samples * self.sample_s

    @property
    def whole_s(self) -> float:
        """How many seconds the window covers without the sample that is being filled."""
        return (self.samples - 1) * self.sample_s


class _Sample:
    """What was counted in one stretch of time."""

    __slots__ = ("last_event", "start", "value")

    def __init__(self, now: float) -> None:
        self.reset(now)

    def reset(self, now: float) -> None:
        self.start = self.last_event = now
        self.value = 0.0


class SampledRate:
    """A mean rate per second.

    It is always taken over at least all whole samples, however few there are yet, or the first request
    of an hour would look like a storm.
    """

    __slots__ = ("_current", "_oldest", "_purge_at", "_samples", "_total", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._samples: list[_Sample] = []  # a ring, with one more than is counted: the oldest may overlap
        self._current = 0
        # What follows from the samples, so that they are gone through once per sample, not per request.
        self._total = 0.0
        self._oldest: float | None = None
        self._purge_at = float("inf")  # or later

    def record(self, value: float, now: float) -> None:
        if not self._samples:
            self._samples.append(_Sample(now))
            self._recount()
        sample = self._samples[self._current]
        if now - sample.start >= self._window.sample_s:
            sample = self._advance(now)
        sample.value += value
        sample.last_event = now
        self._total += value

    def measure(self, now: float) -> float:
        """The rate up to now."""
        span_s = self.span_s(now)
        return self._total / span_s

    def span_s(self, now: float) -> float:
        """The time that the rate is taken over."""
        if now >= self._purge_at:
            self._purge(now)
        window = self._window
        elapsed = 0.0 if self._oldest is None else now - self._oldest
        missing = window.samples - 1 - int(elapsed / window.sample_s)
        if missing > 0:
            elapsed += missing * window.sample_s
        return max(elapsed, MIN_SPAN_S)

    def excess_s(self, limit: float, now: float) -> float:
        """How long nothing may be counted until the rate is down at `limit`; 0 where it is not above."""
        rate = self.measure(now)
        return 0.0 if rate <= limit else (rate - limit) / limit * self.span_s(now)

    def idle(self, now: float) -> bool:
        """Whether nothing that was counted still matters."""
        span_s = self._window.span_s
        return all(now - sample.last_event >= span_s for sample in self._samples)

    def _advance(self, now: float) -> _Sample:
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now))
        else:
            self._samples[self._current].reset(now)
        self._recount()
        return self._samples[self._current]

    def _purge(self, now: float) -> None:
        for sample in self._samples:
            if now - sample.last_event >= self._window.span_s:
                sample.reset(now)
        self._recount()

    def _recount(self) -> None:
        samples = self._samples
        self._total = sum(sample.value for sample in samples)
        self._oldest = min(sample.start for sample in samples)
        self._purge_at = min(sample.last_event for sample in samples) + self._window.span_s


class TokenBucket:
    """A credit of `limit` per second, up to what a whole window brings; it may be overdrawn once."""

    __slots__ = ("_refilled_at", "_tokens", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._tokens: float | None = None  # full, whatever the limit
        self._refilled_at = 0.0

    def record(self, value: float, limit: float, now: float) -> None:
        self._tokens = min(self._burst(limit), self.tokens(limit, now) - value)
        self._refilled_at = now

    def tokens(self, limit: float, now: float) -> float:
        """What may still be spent; below 0, what is owed."""
        if self._tokens is None:
            return self._burst(limit)
        return min(self._burst(limit), self._tokens + limit * (now - self._refilled_at))

    def excess_s(self, limit: float, now: float) -> float:
        """How long until nothing is owed; 0 where nothing is."""
        return max(-self.tokens(limit, now) / limit, 0.0)

    def idle(self, now: float) -> bool:
        """Whether the credit is whole again, if it was not overdrawn by more than a window brings."""
        return self._tokens is None or (self._tokens >= 0 and now - self._refilled_at >= self._window.span_s)

    def _burst(self, limit: float) -> float:
        return limit * self._window.span_s
