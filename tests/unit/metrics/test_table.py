"""The table of metrics is sound, and its page is the one in docs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kraft.metrics.docs import page
from kraft.metrics.metric import Kind, MBean, Metric, Style
from kraft.metrics.sources import WINDOW_S, Rates
from kraft.metrics.table import METRICS

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_up_to_date() -> None:
    assert (DOCS / "METRICS.md").read_text() == page(), "say make docs"


@pytest.mark.parametrize("style", Style)
def test_no_two_rows_have_one_name(style: Style) -> None:
    names = Counter(each.name_in(style) for each in METRICS if each.only in (None, style))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_row_is_read_in_one_place_and_says_what_it_means() -> None:
    for metric in METRICS:
        assert sum(read is not None for read in (metric.node, metric.broker, metric.controller)) == 1, metric
        assert metric.help.endswith((".", "most.", "ms.")), metric
        if metric.kind is Kind.COUNTER:
            assert metric.name_in(metric.only or Style.STRIMZI).endswith("_total"), metric


@pytest.mark.parametrize(
    ("kind", "name", "names"),
    [
        (Kind.COUNTER, "BytesInPerSec", ("bytesin_total", "bytesinpersec_total", "bytesinpersec")),
        (Kind.GAUGE, "LeaderCount", ("leadercount",) * 3),
        (Kind.GAUGE, "AvgIdlePercent", ("avgidle_percent", "avgidlepercent", "avgidlepercent")),
    ],
)
def test_an_mbean_is_named_by_three_traditions(kind: Kind, name: str, names: tuple[str, ...]) -> None:
    metric = Metric(name=MBean("server", "Some", name), kind=kind, help="", node=lambda _: 0)
    assert tuple(metric.name_in(style) for style in Style) == tuple(f"kafka_server_some_{n}" for n in names)
    assert metric.kind_in(Style.CONFLUENT) is (Kind.UNKNOWN if kind is Kind.COUNTER else kind)


def test_a_rate_is_taken_over_a_window_however_often_it_is_asked_for() -> None:
    now = 0.0
    rates = Rates(lambda: now)
    assert rates.per_second("x", 1000.0) == 0.0
    measured = []
    while now < 4 * WINDOW_S:
        now += 1.0
        measured.append(rates.per_second("x", 1000.0 + 3.0 * now))
    assert measured == [pytest.approx(3.0)] * len(measured)
    now += 10 * WINDOW_S
    assert rates.per_second("x", 1000.0 + 3.0 * 4 * WINDOW_S) < 0.6
