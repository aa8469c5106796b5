"""Whom the observer believes when nodes contradict each other, and that a silent node delays nobody."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.observed import FRESH_NS, ObservedCluster, ObservedController, ObservedPartition
from chaos.observer import Coordinated, Observer
from chaos.repeated import repeated
from kraft.net.client import Address

T = FRESH_NS
FULL = ObservedPartition(1, 4, (1, 2, 3))
SHRUNK = FULL._replace(isr=(1, 3))


def seen() -> tuple[ObservedCluster, list[Any]]:
    lines: list[Any] = []
    observed = ObservedCluster(lines.append)
    observed.controller_reported(0, ObservedController(2, 7))
    for node in (1, 2, 3):
        observed.partitions_reported(node, 0, {"t-0": FULL})
    return observed, lines


def test_the_leader_is_believed_about_its_own_epoch():
    observed, _ = seen()
    observed.partitions_reported(3, 1, {"t-0": SHRUNK})
    assert observed.partition("t-0") == FULL
    observed.partitions_reported(1, 2, {"t-0": SHRUNK})
    observed.partitions_reported(2, 3, {"t-0": FULL})
    assert observed.partition("t-0") == SHRUNK


def test_a_higher_epoch_is_believed_whoever_sends_it_and_never_given_up_for_a_lower_one():
    observed, _ = seen()
    moved = ObservedPartition(3, 5, (2, 3))
    observed.partitions_reported(2, 1, {"t-0": moved})
    assert observed.partition("t-0") == moved
    observed.partitions_reported(1, 2, {"t-0": FULL})  # the old leader has not heard
    assert observed.partition("t-0") == moved
    observed.partitions_reported(1, 2 * T, {"t-0": FULL})  # nor when nobody else has spoken for long
    assert observed.partition("t-0") == moved
    assert observed.said("t-0")[1] == FULL


def test_where_the_leader_is_silent_the_controller_is_believed():
    observed, _ = seen()
    observed.partitions_reported(3, 2 * T, {"t-0": FULL})
    observed.partitions_reported(2, 2 * T + 1, {"t-0": SHRUNK})
    observed.partitions_reported(3, 2 * T + 2, {"t-0": FULL})
    assert observed.partition("t-0") == SHRUNK


def test_only_the_leader_reports_a_high_watermark_and_it_is_no_new_entry_of_the_past():
    observed, lines = seen()
    observed.high_watermarks_reported(2, 1, {"t-0": 50})
    assert observed.partition("t-0") == FULL
    observed.high_watermarks_reported(1, 2, {"t-0": 40})
    observed.high_watermarks_reported(1, 3, {"t-0": 40})
    observed.partitions_reported(1, 4, {"t-0": SHRUNK})
    assert [at.time_ns for at in observed.partitions["t-0"]] == [0, 4]
    assert [(line["time"], line["isr"], line["hw"]) for line in lines if line["f"] == "partition"] == [
        (0, (1, 2, 3), None), (2, (1, 2, 3), 40), (4, (1, 3), 40),
    ]  # fmt: skip


def test_controllers_come_with_higher_terms_and_nodes_change_their_state():
    observed, lines = seen()
    observed.controller_reported(1, ObservedController(3, 6))
    observed.controller_reported(2, ObservedController(-1, 8))
    observed.controller_reported(3, ObservedController(1, 8))
    observed.controller_reported(4, ObservedController(1, 8))
    assert [controller for _, controller in observed.controllers] == [
        ObservedController(2, 7),
        ObservedController(1, 8),
    ]
    for time_ns, state in enumerate(("up", "up", "down", "up")):
        observed.node_is(2, time_ns, state)  # type: ignore[arg-type]
    assert observed.nodes[2] == [(0, "up"), (2, "down"), (3, "up")]
    assert lines[-1] == {"time": 3, "f": "node", "id": 2, "state": "up"}


def test_a_silent_node_and_a_dead_one_are_distinguished(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, for the backlog does, and says nothing
        addresses = {1: Address(*silent.getsockname()), 2: Address("127.0.0.1", free_ports(1)[0])}
        path = tmp_path / "cluster.jsonl"
        with Observer(addresses, ["t"], now_ns=time.monotonic_ns, path=path) as observer:
            assert observer.wait_for(lambda: observer.state(2) == "down", 180)
            assert observer.wait_for(lambda: observer.state(1) == "paused", 180)
            assert observer.coordinator(Coordinated("group")) is None
            assert not observer.wait_for(lambda: observer.leader("t-0"), 0.1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["id"], line["state"]) for line in lines] == [(2, "down"), (1, "paused")]


def test_a_watch_that_ended_is_told(free_ports: Callable[[int], list[int]]) -> None:
    """What it would have seen afterwards is in no file: whoever judges that would judge too little."""
    ended = threading.Event()

    def now_ns() -> int:
        ended.set()
        raise ValueError("a bug")

    observer = Observer({1: Address("127.0.0.1", free_ports(1)[0])}, ["t"], now_ns=now_ns)
    observer.start()
    assert ended.wait(180)
    with pytest.raises(ValueError, match="a bug"):
        observer.close()


def test_what_is_repeated_and_fails_is_told() -> None:
    failed = threading.Event()

    def look() -> None:
        failed.set()
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"), repeated(look, 0.0, "look"):
        assert failed.wait(180)
