"""Requests are counted, and a few of them timed."""

from __future__ import annotations

import pytest

from kraft.monitoring.request_metrics import (
    SAMPLES,
    TIMED_PER_S,
    ApiMetrics,
    Phase,
    RequestMetrics,
    RequestTiming,
)
from kraft.wire.api_keys import ApiKey


class Watch:
    """A stopwatch that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def started(metrics: RequestMetrics, arrived: float) -> RequestTiming:
    timing = metrics.started(ApiKey.PRODUCE, arrived)
    assert timing is not None
    return timing


def test_time_is_measured_by_phase() -> None:
    watch = Watch()
    metrics = RequestMetrics({ApiKey.PRODUCE: "Produce"}, watch)
    timing = started(metrics, arrived=99.0)
    for phase, seconds in ((Phase.LOCAL, 0.5), (Phase.REMOTE, 2.0), (Phase.RESPONSE_QUEUE, 0.25)):
        watch.now += seconds
        timing.end(phase)
    timing.throttled(4.0)
    watch.now += 0.125
    timing.sent()
    (api,) = metrics
    assert [samples[0] for samples in api.samples] == [1000, 500, 2000, 4000, 250, 125, 7875]


def test_a_fetch_counts_for_who_sent_it_too() -> None:
    metrics = RequestMetrics({ApiKey.PRODUCE: "Fetch"}, Watch())
    timing = started(metrics, 100.0)
    metrics.fetch_follower.requests += 1
    timing.also(metrics.fetch_follower)
    timing.sent()
    assert [(api.name, len(api.samples[0])) for api in metrics] == [("Fetch", 1), ("FetchFollower", 1)]


@pytest.mark.parametrize("per_s", [10, 1000, 20_000])
def test_of_many_requests_some_hundred_a_second_are_timed(per_s: int) -> None:
    watch = Watch()
    metrics = RequestMetrics({ApiKey.PRODUCE: "Produce"}, watch)
    timed = 0
    for _ in range(per_s * 10):
        watch.now += 1 / per_s
        timed += metrics.started(ApiKey.PRODUCE, watch.now) is not None
    (api,) = metrics
    assert api.requests == per_s * 10
    assert min(per_s * 10, TIMED_PER_S) / 2 <= timed <= TIMED_PER_S * 10 * 2


def test_of_few_requests_after_many_all_are_timed_again() -> None:
    watch = Watch()
    metrics = RequestMetrics({ApiKey.PRODUCE: "Produce"}, watch)

    def timed(count: int, every_s: float) -> int:
        found = 0
        for _ in range(count):
            watch.now += every_s
            found += metrics.started(ApiKey.PRODUCE, watch.now) is not None
        return found

    timed(100_000, 0.00001)
    timed(1000, 1.0)
    assert timed(10, 1.0) == 10


def test_the_oldest_samples_give_way() -> None:
    api = ApiMetrics("Produce")
    for value in range(2 * SAMPLES):
        api.record([float(value)] * len(Phase))
    assert len(api.samples[Phase.TOTAL]) == SAMPLES
    assert min(api.samples[Phase.TOTAL]) == SAMPLES
    median, *_, last = api.quantiles(Phase.TOTAL)
    assert median == pytest.approx(1.5 * SAMPLES, rel=0.01)
    assert last == pytest.approx(2 * SAMPLES, rel=0.01)


def test_a_frame_that_names_no_api_is_nobodys() -> None:
    metrics = RequestMetrics({ApiKey.PRODUCE: "Produce"}, Watch())
    assert metrics.started(0x7FFF, 0.0) is None
    assert list(metrics) == []


def test_refusals_are_counted_by_api_and_error() -> None:
    metrics = RequestMetrics()
    for _ in range(2):
        metrics.refused("Produce", "NOT_LEADER_OR_FOLLOWER")
    assert metrics.errors == {("Produce", "NOT_LEADER_OR_FOLLOWER"): 2}
