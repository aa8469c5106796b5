"""No test may make a node's loop stand still: what a node's watch over its loop tells fails the test.

Every node that a test starts, however it does, is told by the environment where to write it down
(kraft/stall_watch.py). The limit is CPU time of the loop's thread, so that a busy machine fails nobody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kraft.stall_watch import RECORD_ENVIRONMENT

FAILS: Final = "KRAFT_STALLS_FAIL" in os.environ
"""Until what is known to stand still has left the loop, it is only written down."""


class Stalls:
    """The record of one worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new(self) -> list[str]:
        """What has been written since the last call."""
        if not self._path.exists() or self._path.stat().st_size == self._read:
            return []
        with open(self._path, encoding="utf-8") as file:
            file.seek(self._read)
            lines = file.readlines()
            self._read = file.tell()
        return [_told(line) for line in lines]


def _told(line: str) -> str:
    stall = json.loads(line)
    where = "\n".join(f"    at {stack}" for stack in stall["stacks"])
    return f"node {stall['node']}'s loop stood still: {stall['cpu_ms']} ms of CPU time\n{where}"


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
def no_loop_stands_still(stalls: Stalls) -> Iterator[None]:
    yield
    told = stalls.new()
    if told and FAILS:
        pytest.fail("\n".join(told), pytrace=False)
