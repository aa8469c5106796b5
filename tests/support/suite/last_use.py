"""What waits costs, too: a node that nobody asks anything takes a fiftieth of a core. So nodes and JVMs of
the session end when the last test that asks for them is over, and not with the session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

SHARED: Final = "shared_cluster"
DEAR: Final = (SHARED, "spark")
"""Fixtures of the session."""


class LastUse:
    """A pytest plugin. A worker has all items, and takes its own in their order."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._last: dict[str, int] = {}
        """The place of the last item that asks for a fixture."""
        self._ends: dict[str, Callable[[], None]] = {}
        """Of those that are set up."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for place, item in enumerate(session.items):
            self._places[item.nodeid] = place
            for name in DEAR:
                if name in getattr(item, "fixturenames", ()):
                    self._last[name] = place

    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
        if fixturedef.argname in DEAR:
            self._ends[fixturedef.argname] = partial(fixturedef.finish, request)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Who asks for one after all gets another."""
        for name in DEAR:
            if name in self._ends and self._places[item.nodeid] > self._last.get(name, -1):
                self._ends.pop(name)()
