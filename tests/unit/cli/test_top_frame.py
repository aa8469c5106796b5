"""`kraft top`: what a frame shows of a snapshot, and what keys change."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from kraft.cli.top_frame import Choice, Known, Size, Sort, frame
from kraft.cli.top_screen import DOWN, ESCAPE, UP, take_key

TIME_MS = 1_700_000_000_000


def partition(
    topic: str, number: int = 0, *, ends: tuple[int | None, ...] = (100, 100, 100), **more: Any
) -> Any:
    replicas = [
        {"id": i, "in_sync": True, "end": end, "behind_s": 0.0, "offline": False}
        for i, end in enumerate(ends, 1)
    ]
    return {
        "topic": topic, "partition": number, "leader": 1, "leader_epoch": 0, "state": "in sync", "start": 0,
        "high_watermark": 100, "end": 100, "size": 1000, "replicas": replicas, "adding": [], "removing": [],
    } | more  # fmt: skip


def broker(number: int, **more: Any) -> Any:
    return {
        "id": number, "rack": None, "address": f"127.0.0.1:{number}", "fenced": False, "shutting_down": False,
        "answers": True, "state": "running", "leads": 1, "replicas": 3, "size": 5_000_000, "metadata_lag": 0,
        "stalls": 0, "faults": 0, "log_dirs": [{"path": "/d", "online": True}],
    } | more  # fmt: skip


def snapshot(*partitions: Any, brokers: Any = None, groups: Any = ()) -> Any:
    return {
        "cluster_id": "abc", "told_by": 1, "time_ms": TIME_MS, "metadata": {"offset": 1, "epoch": 1},
        "quorum": {"leader": 2, "term": 7, "voters": []},
        "brokers": brokers or [broker(i) for i in (1, 2, 3)],
        "totals": {"topics": 1, "partitions": len(partitions), "no_leader": 0, "under_min_isr": 0,
                   "under_replicated": 0},
        "partitions": list(partitions), "more_partitions": 0, "groups": list(groups),
    }  # fmt: skip


def group(name: str, lag: int | None) -> Any:
    told = {"id": name, "type": "classic", "state": "Stable", "members": [1, 2], "offsets": [{}]}
    return {**told, "lag": lag, "lag_exact": True}


def lines(known: Known, choice: Choice | None = None, columns: int = 80, height: int = 24) -> list[str]:
    out = StringIO()
    console = Console(file=out, width=columns, highlight=False)
    console.print(frame(known, choice or Choice(), Size(columns, height)))
    return out.getvalue().splitlines()


def test_a_frame_fits_into_every_terminal() -> None:
    events = tuple(
        {"number": i, "time_ms": TIME_MS, "kind": "ISR shrink", "subject": "t-0", "text": "long " * 40}
        for i in range(50)
    )
    many = [partition("a-topic-with-a-name-of-some-length", i, ends=(100, 50, 0, 7, 8)) for i in range(300)]
    view = snapshot(*many, groups=[group(f"g{i}", i) for i in range(30)])
    for columns in (60, 80, 132, 200):
        for height in (12, 18, 24, 50):
            drawn = lines(Known(view, events, "127.0.0.1:9292 does not answer"), None, columns, height)
            assert len(drawn) <= height, (columns, height)
            assert max(map(len, drawn)) <= columns
    assert "as node 1 sees it" in lines(Known(view))[0]


def test_what_is_wrong_is_said_in_words() -> None:
    behind = partition("t", 1, ends=(100, 40, None), state="under-replicated")
    behind["replicas"][1]["in_sync"] = False
    behind["replicas"][2]["offline"] = True
    view = snapshot(
        partition("t"), behind, brokers=[broker(1), broker(2, answers=False), broker(3, fenced=True)]
    )
    drawn = lines(Known(view, trouble="127.0.0.1:9292 does not answer"), height=40)
    assert "! does not answer" in drawn[4]
    assert "! fenced" in drawn[5]
    (row,) = [line for line in drawn if "isr short" in line and line.startswith("t")]
    assert row.split() == ["t", "1", "isr", "short", "★1", "██████", "✗2", "██▍", "3", "failed", "100", "60"]
    assert "1/3 brokers" in drawn[1]
    assert "controller" in drawn[4]


def test_the_high_watermark_stands_in_the_bars() -> None:
    (row,) = [line for line in lines(Known(snapshot(partition("t", high_watermark=50)))) if line[:2] == "t "]
    assert row.count("███│██") == 3


def test_partitions_are_sorted_and_filtered() -> None:
    view = snapshot(
        partition("b", size=1),
        partition("a", ends=(100, 20, 100), size=2),
        partition("c", size=3, state="no leader"),
        partition("__consumer_offsets"),
    )

    def order(choice: Choice) -> str:
        return "".join(
            line[0] for line in lines(Known(view), choice) if line[1:3] == "  " and line[0] in "abc_"
        )

    choice = Choice()
    seen = []
    for _ in Sort:
        seen.append(order(choice))
        take_key(choice, "s")
    assert seen == ["cab", "abc", "abc", "cab"]
    assert choice.sort is Sort.STATE
    assert order(Choice(filter="no leader")) == "c"
    assert any("__consumer" in line for line in lines(Known(view), Choice(internal=True)))


def test_groups_that_lag_come_first() -> None:
    drawn = lines(Known(snapshot(groups=[group("quick", 0), group("slow", 123_456), group("unknown", None)])))
    named = [line.split()[0] for line in drawn if "classic" in line]
    assert named == ["unknown", "slow", "quick"]
    assert any("123K" in line for line in drawn)


def test_names_do_not_command_the_terminal() -> None:
    drawn = "\n".join(lines(Known(snapshot(groups=[group("\x1b]0;owned\x07", 0)]))))
    assert "\x1b" not in drawn
    assert "owned" in drawn


@pytest.mark.parametrize("name", ["[/x]", "[bold]", ":smile:"])
def test_names_are_no_markup(name: str) -> None:
    """A closing tag that nothing opens ended the command with a traceback."""
    view = snapshot(groups=[group(name, 0)], brokers=[broker(1, rack=name)])
    assert sum(name in line for line in lines(Known(view))) == 2


def test_before_anybody_has_told_anything() -> None:
    assert lines(Known()) == ["asking ..."]
    assert lines(Known(trouble="127.0.0.1:1 does not answer")) == ["127.0.0.1:1 does not answer"]


def test_keys() -> None:
    choice = Choice()
    for key in "/q flights\x7f\r":
        assert not take_key(choice, key), "q is a letter of the filter"
    assert (choice.filter, choice.typing) == ("q flight", False)
    for key in (DOWN, "j", UP, "i"):
        take_key(choice, key)
    assert (choice.scrolled, choice.internal) == (1, True)
    take_key(choice, ESCAPE)
    assert choice.filter == ""
    assert take_key(choice, "q")


@pytest.mark.parametrize(("pressed", "first"), [(1, 1), (400, 296)])
def test_scrolling_ends_at_the_last_partition(pressed: int, first: int) -> None:
    view, choice = snapshot(*[partition("t", i) for i in range(300)]), Choice()
    for _ in range(pressed):
        take_key(choice, DOWN)
    rows = [line for line in lines(Known(view), choice, height=14) if line.startswith("t ")]
    assert int(rows[0].split()[1]) == first
    if pressed > 300:
        assert int(rows[-1].split()[1]) == 299
