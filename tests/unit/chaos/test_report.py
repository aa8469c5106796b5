"""What the report makes of a run's files: series, spans, evidence, and a page that stays small and whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from chaos.events import Event
from chaos.history import Header, History, Operation, Poll, Send, TopicMode
from chaos.report import anomalies, client_series, cluster_series
from chaos.report.buckets import MAX_BUCKETS, MS, Buckets, buckets_over, thinned
from chaos.report.page import write_report
from chaos.report.recorded import RecordedRun
from tests.support.chaos import synthetic_run

S = 1_000 * MS
SECONDS = Buckets(S, 10)


def history(*operations: Operation) -> History:
    return History(Header({"t": TopicMode(1, -1)}), operations)


def sent(start_ms: int, took_ms: int = 1, outcome: str = "ok") -> Operation:
    return Operation(0, "send", start_ms * MS, (start_ms + took_ms) * MS, outcome, [Send("t-0", start_ms)])  # type: ignore[arg-type]


# Time


@given(st.integers(1, 10**16))
def test_buckets_cover_any_run_and_are_few(duration_ns: int) -> None:
    buckets = buckets_over(duration_ns)
    assert 1 <= buckets.count <= MAX_BUCKETS
    assert (buckets.count - 1) * buckets.width_ns < duration_ns <= buckets.count * buckets.width_ns


@given(st.lists(st.integers(0, 9_999), max_size=200).map(sorted))
def test_thinning_keeps_the_state_at_every_end_of_a_bucket(times: list[int]) -> None:
    changes = [(float(at), place) for place, at in enumerate(times)]
    kept = thinned(changes, SECONDS, limit=10)
    assert len(kept) <= max(10, 2 * SECONDS.count)
    for end in range(1_000, 10_001, 1_000):
        assert state_before(end, kept) == state_before(end, changes)


def state_before(time_ms: float, changes: Sequence[tuple[float, int]]) -> int | None:
    return next((state for at, state in reversed(changes) if at < time_ms), None)


# Clients


def test_the_longest_gap_is_measured_between_acks_not_between_buckets() -> None:
    steady = [sent(at) for at in [*range(0, 3_000, 100), *range(5_050, 8_000, 100)]]
    (topic,) = client_series.topics(history(*steady), SECONDS)
    assert topic["rate"] == [10, 10, 10, 0, 0, 10, 10, 10, 0, 0]
    assert topic["longest"] == (2_901.0, 5_051.0)
    assert topic["gaps"] == [(2_901.0, 5_051.0)]


def test_of_an_operation_of_unknown_outcome_that_counts_which_was_acknowledged() -> None:
    sends = [Send("t-0", 1, 0), Send("t-0", 2, None)]
    (topic,) = client_series.topics(history(Operation(0, "send", 0, MS, "info", sends)), SECONDS)
    assert topic["acked"] == 1


def test_senders_that_hear_nothing_at_the_end_are_in_a_gap() -> None:
    heard = [sent(at) for at in range(0, 1_000, 100)]
    unheard = [sent(at, 1_000, "info") for at in range(1_000, 7_000, 1_000)]
    (topic,) = client_series.topics(history(*heard, *unheard), SECONDS)
    assert topic["gaps"] == [(901.0, 6_000.0)]


def test_silence_when_nobody_sends_any_more_is_no_gap() -> None:
    late_poll = Operation(1, "poll", 8 * S, 9 * S, "ok")
    (topic,) = client_series.topics(history(*(sent(at) for at in range(0, 1_000, 100)), late_poll), SECONDS)
    assert topic["gaps"] == []


def test_percentiles_are_measured_values_and_empty_polls_do_not_count() -> None:
    empty = Operation(1, "poll", 0, 500 * MS, "ok", [Poll({"t-0": []})])
    full = Operation(1, "poll", 0, 7 * MS, "ok", [Poll({"t-0": [[0, 1]]})])
    sends = [sent(100, took) for took in range(1, 101)]
    series = client_series.latency(history(empty, full, *sends, sent(200, 900, "fail")), SECONDS)
    assert (series["send"]["n"][0], series["send"]["p50"][0], series["send"]["p99"][0]) == (100, 50.0, 99.0)
    assert (series["poll"]["n"][0], series["poll"]["p50"][0]) == (1, 7.0)
    assert series["send"]["p50"][1] is None


def test_outcomes_are_counted_where_they_became_known() -> None:
    series = client_series.outcomes(history(sent(0), sent(0, 2_500, "info"), sent(10, 5, "fail")), SECONDS)
    assert (series["ok"][0], series["fail"][0], series["info"][2]) == (1, 1, 1)


# Cluster


def test_a_fault_lasts_from_its_begin_to_the_end_of_the_same_text() -> None:
    events = [
        Event(1 * S, "begin", "cut 2>1", "why"),
        Event(2 * S, "begin", "cut 1>2"),
        Event(3 * S, "end", "cut 2>1", "what came of it"),
        Event(4 * S, "point", "healed"),
    ]
    cut, remarks = cluster_series.faults(events, SECONDS)
    assert [row["target"] for row in cut["rows"]] == ["2>1", "1>2"]
    first = {"start": 1_000.0, "end": 3_000.0, "text": "cut 2>1", "detail": "why; what came of it"}
    assert [row["spans"] for row in cut["rows"]] == [
        [first],
        [{"start": 2_000.0, "end": None, "text": "cut 1>2", "detail": ""}],
    ]
    assert remarks["kind"] == "remarks"
    assert remarks["rows"][0]["spans"] == [{"start": 4_000.0, "end": 4_000.0, "text": "healed", "detail": ""}]


def test_many_targets_share_as_few_rows_as_their_spans_allow() -> None:
    events = []
    for n in range(20):  # each overlaps only the one before
        events += [Event(n * S, "begin", f"slow 1>{n}"), Event(n * S + S * 3 // 2, "end", f"slow 1>{n}")]
    (slow,) = cluster_series.faults(sorted(events), SECONDS)
    assert len(slow["rows"]) == 2
    for row in slow["rows"]:
        ends = [span["end"] for span in row["spans"]]
        assert all(end <= span["start"] for end, span in zip(ends, row["spans"][1:], strict=False))


def test_partitions_show_changes_only_and_where_the_watermark_fell() -> None:
    def seen(at: int, leader: int, epoch: int, isr: list[int], hw: int | None) -> dict[str, object]:
        changes = {"leader": leader, "leader_epoch": epoch, "isr": isr, "hw": hw}
        return {"time": at * S, "f": "partition", "key": "t-10", **changes}

    lines = [
        seen(0, 1, 1, [2, 1], 5),
        seen(1, 1, 1, [1, 2], 9),
        seen(2, -1, 2, [], None),
        seen(3, 2, 3, [2], 7),
    ]
    shown = cluster_series.cluster([*lines, {**lines[0], "key": "t-9"}], SECONDS)
    nine, ten = shown["partitions"]
    assert (nine["key"], ten["key"]) == ("t-9", "t-10")
    assert ten["leaders"] == [(0.0, 1, 1), (2_000.0, -1, 2), (3_000.0, 2, 3)]
    assert ten["isr"] == [(0.0, [1, 2]), (2_000.0, []), (3_000.0, [2])]
    assert ten["hw_falls"] == [(3_000.0, 9, 7)]
    assert [node["id"] for node in shown["nodes"]] == [1, 2]


# Anomalies


def test_what_is_not_shown_is_counted_against_what_the_checker_counted() -> None:
    anomaly = {
        "kind": "unseen",
        "key": "t-0",
        "allowed": True,
        "summary": "",
        "detail": {"value": 3, "offset": None},
    }
    found = [{**anomaly, "evidence": [1]} for _ in range(100)] + [
        {**anomaly, "allowed": False, "evidence": [0, 1]}
    ]
    counts = {"unseen": {"forbidden": 1, "allowed": 1_000}}
    verdict = {"ok": False, "checker": {"anomalies": found, "counts": counts, "not_judged": {}, "stats": {}}}
    made = anomalies.shown(RecordedRun(history(sent(0), sent(5)), (), (), verdict))
    assert made["shown"][0]["allowed"] is False
    assert (made["shown"][0]["start"], made["shown"][0]["end"]) == (0.0, 6.0)
    assert made["shown"][0]["marks"] == {"offsets": [], "values": [3]}
    assert made["left_out"] == [{"kind": "unseen", "allowed": True, "n": 1_001 - len(made["shown"])}]
    assert sorted(made["operations"]) == [0, 1]


# The page


def test_the_page_holds_its_data_whole_and_loads_nothing(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, seconds=20)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    _, _, rest = page.partition('<script type="application/json" id="data">')
    data, _, after = rest.partition("</script>")
    read = json.loads(data)
    assert read["command"] == "kraft chaos run made-up --seed 7"
    assert any("</script> and <!--" in expectation["detail"] for expectation in read["expectations"])
    assert after.count("</script>") == 1
    for loading in ("src=", 'href="http', "url(http", "@import", "fetch("):
        assert loading not in page


def test_the_page_of_a_long_run_is_no_larger_than_that_of_a_short_one(tmp_path: Path) -> None:
    sizes = []
    for seconds in (40, 120):
        directory = tmp_path / str(seconds)
        directory.mkdir()
        synthetic_run.write(directory, seconds=seconds, doubled=False)
        sizes.append(write_report(directory).stat().st_size)
    assert sizes[1] < 1.6 * sizes[0], sizes


def test_a_history_alone_makes_a_page(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, seconds=2)
    (tmp_path / "events.jsonl").unlink()
    (tmp_path / "cluster.jsonl").unlink()
    assert "held" in write_report(tmp_path).read_text(encoding="utf-8")
