"""The meters behind quotas: an obedient client comes out at its limit, whatever it asks and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.quotas.client_quotas import KEPT_IDLE, SHOWN_S, ClientQuotas
from data_plane.quotas.limits import QuotaClient
from data_plane.quotas.rates import QuotaWindow, SampledRate, TokenBucket
from metadata_quorum.foundation.quota_types import QuotaType

pytestmark = pytest.mark.row("R12")

WINDOWS = st.builds(QuotaWindow, st.integers(2, 12), st.sampled_from([0.25, 1.0, 2.0]))
LIMITS = st.floats(1, 1e6)
AMOUNTS = st.floats(0, 1e6)
GAPS = st.floats(0, 5)
ASKED = st.lists(st.tuples(AMOUNTS, GAPS), min_size=1, max_size=60)


@given(WINDOWS, LIMITS, ASKED)
def test_who_pauses_as_requested_stays_at_the_limit(
    window: QuotaWindow, limit: float, asked: list[tuple[float, float]]
) -> None:
    """Over the whole run: at most the limit, two windows that are free at first, the last request, and a
    window for each pause, for it does not learn how much of it was worked off in pausing (nor is Kafka's)."""
    rate, now, total, pauses = SampledRate(window), 100.0, 0.0, 0
    for amount, gap in asked:
        rate.record(amount, now)
        total += amount
        pause_s = rate.excess_s(limit, now)
        free_s = (2 + pauses) * window.span_s
        assert total <= limit * (now + pause_s - 100.0 + free_s) * (1 + 1e-9) + amount + 1e-3
        now += pause_s + gap
        pauses += pause_s > 0


@given(WINDOWS, LIMITS, ASKED)
def test_only_who_is_over_the_limit_pauses(
    window: QuotaWindow, limit: float, asked: list[tuple[float, float]]
) -> None:
    """For as long as makes what was counted the limit, over the rate's time and the pause together."""
    rate, now = SampledRate(window), 100.0
    for amount, gap in asked:
        rate.record(amount, now)
        now += gap
        pause_s, counted = rate.excess_s(limit, now), rate.measure(now) * rate.span_s(now)
        assert (pause_s > 0) == (rate.measure(now) > limit)
        if pause_s > 0:
            assert counted / (rate.span_s(now) + pause_s) == pytest.approx(limit)


@given(WINDOWS, ASKED)
def test_a_rate_is_a_naive_mean(window: QuotaWindow, asked: list[tuple[float, float]]) -> None:
    """Never more than all that could be in the window, over the time of its whole samples."""
    rate, now = SampledRate(window), 100.0
    events: list[tuple[float, float]] = []
    for amount, gap in asked:
        now += gap
        rate.record(amount, now)
        events.append((now, amount))
        recent = sum(a for at, a in events if now - at <= window.span_s + window.sample_s)
        newest = sum(a for at, a in events if now - at < window.whole_s)
        assert rate.measure(now) * rate.span_s(now) <= recent + 1e-3
        assert rate.measure(now) * rate.span_s(now) >= newest - 1e-3
        assert rate.span_s(now) >= window.whole_s


@given(WINDOWS, LIMITS, ASKED)
def test_a_bucket_never_holds_more_than_a_burst(
    window: QuotaWindow, limit: float, asked: list[tuple[float, float]]
) -> None:
    bucket, now, spent = TokenBucket(window), 100.0, 0.0
    burst = limit * window.span_s
    for amount, gap in asked:
        if bucket.excess_s(limit, now) == 0:
            bucket.record(amount, limit, now)
            spent += amount
        assert bucket.tokens(limit, now) <= burst
        assert spent <= burst + limit * (now - 100.0) + amount + 1e-3 or bucket.tokens(limit, now) < 0
        owed_s = bucket.excess_s(limit, now)
        assert bucket.tokens(limit, now + owed_s) >= -1e-6
        now += gap


def test_what_is_given_back_was_never_used() -> None:
    client = QuotaClient("u", "c")
    quotas = ClientQuotas(QuotaWindow(), QuotaWindow())
    quotas.take({(("user", "u"),): {"consumer_byte_rate": 10.0}})
    assert quotas.most_at_once(QuotaType.FETCHED_BYTES, client) == 100
    assert quotas.used(QuotaType.FETCHED_BYTES, client, 1000, 5.0) > 0
    quotas.give_back(QuotaType.FETCHED_BYTES, client, 1000, 5.0)
    assert quotas.used(QuotaType.FETCHED_BYTES, client, 100, 5.0) == 0
    assert quotas.used(QuotaType.FETCHED_BYTES, QuotaClient("u", "another of the same user"), 1, 5.0) > 0


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    quotas = ClientQuotas(QuotaWindow(), QuotaWindow())
    quotas.take({(("client-id", None),): {"producer_byte_rate": 1.0, "controller_mutation_rate": 1.0}})
    for number in range(5 * KEPT_IDLE):
        client, now = QuotaClient("u", f"c{number}"), float(number)
        quotas.used(QuotaType.PRODUCED_BYTES, client, 1, now)
        quotas.mutated(client, 1, now, strict=True)
    assert quotas.kept <= KEPT_IDLE


def test_what_very_many_strangers_left_goes_with_the_requests_of_others() -> None:
    """Tens of thousands of meters stayed until as many others had come, each with lines in the metrics."""
    quotas = ClientQuotas(QuotaWindow(), QuotaWindow())
    quotas.take({(("client-id", None),): {"producer_byte_rate": 1.0}})
    strangers = 3 * KEPT_IDLE
    for number in range(strangers):
        quotas.used(QuotaType.PRODUCED_BYTES, QuotaClient("u", f"stranger{number}"), 1, 0.0)
    assert quotas.kept == strangers
    for request in range(strangers):
        quotas.used(QuotaType.PRODUCED_BYTES, QuotaClient("u", "client"), 1, 60.0 + request)
    assert quotas.kept <= KEPT_IDLE
    later = 60.0 + strangers + SHOWN_S
    quotas.used(QuotaType.PRODUCED_BYTES, QuotaClient("u", "client"), 1, later)
    assert [client for _, client, _ in quotas.measured(QuotaType.PRODUCED_BYTES, later)] == ["client"]
    assert [client for _, client, _ in quotas.pauses(QuotaType.PRODUCED_BYTES, later)] == ["client"]
