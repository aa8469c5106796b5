"""No test may stall a node's loop: a stall that the node's own watch reports fails the test.

Every node that a test starts, however it does, finds in the environment the file to report to
(kraft/monitoring/stall_watch.py). The limit is CPU time of the loop's thread, so that a busy machine fails
no test; and what a slower machine takes more of it is allowed, too, by what it was right behind the stall or
is at the test's end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kraft.monitoring.stall_watch import RECORD_ENVIRONMENT
from tests.support.cpu_time import slowness, slowness_of

FAILS_FROM_MS: Final = 100.0
"""Twice what the log reports. CPU time stretches, too, where two threads share one core: of the
same work on a busy machine one iteration in a hundred took twice as long. Tests of a client that means harm
fail from half of it (`stall_ms`): what they ask for is made to take long."""

EXCUSED_TESTS: Final = {
    "test_ten_thousand_idle_connections": "as many connections end in one iteration, each in some 15 us",
}
EXCUSED_CALLS: Final = {
    "<frozen importlib._bootstrap>": "a first request of a version loads its schema, once, in some 10 ms: "
    "a test that speaks many versions has several of these in one iteration, and to load all takes 1.5 s",
}
"""In which a node may stall, and why."""


class Stalls:
    """The record of one worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new(self, from_ms: float = FAILS_FROM_MS, slowness: Callable[[], float] = slowness) -> list[str]:
        """What has been written since the last call, of so many milliseconds or more on a machine that is not
        slower than usual."""
        if not self._path.exists() or self._path.stat().st_size == self._read:
            return []
        with open(self._path, "rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # a node may just be writing
        self._read += len(whole)
        stalls = [json.loads(line) for line in whole.splitlines()]
        long = [stall for stall in stalls if stall["cpu_ms"] >= from_ms and not _excused(stall)]
        now = slowness() if long else 1.0
        return [
            _described(stall)
            for stall in long
            if stall["cpu_ms"] >= from_ms * max(now, slowness_of(stall["yardstick_ms"] / 1000))
        ]


def _excused(stall: Mapping[str, Any]) -> bool:
    """Whether most of its sampled stacks are in EXCUSED_CALLS."""
    stacks = stall["stacks"]
    known = [stack for stack in stacks if any(call in stack for call in EXCUSED_CALLS)]
    return 2 * len(known) >= max(len(stacks), 1)


def _described(stall: Mapping[str, Any]) -> str:
    where = "\n".join(f"    at {stack}" for stack in stall["stacks"])
    return f"node {stall['node']}'s loop stalled: {stall['cpu_ms']} ms of CPU time\n{where}"


@pytest.fixture(scope="session")
def stalls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stalls]:
    path = tmp_path_factory.mktemp("stalls") / "stalls.json"
    before = os.environ.get(RECORD_ENVIRONMENT)
    os.environ[RECORD_ENVIRONMENT] = str(path)
    yield Stalls(path)
    del os.environ[RECORD_ENVIRONMENT]
    if before is not None:
        os.environ[RECORD_ENVIRONMENT] = before


@pytest.fixture(autouse=True)
def no_loop_stands_still(stalls: Stalls, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    limit = request.node.get_closest_marker("stall_ms")
    lines = stalls.new(FAILS_FROM_MS if limit is None else limit.args[0])
    if lines and request.node.name not in EXCUSED_TESTS:
        pytest.fail("\n".join(lines), pytrace=False)
