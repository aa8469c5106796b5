"""Which worker runs what. There are more workers than cores: most tests wait for nodes.

A file stays on one worker, for the sake of its clusters; so do those of TOGETHER, for what is dearer.
Tests of the files of APART have nothing in common: each goes where there is time.
They are handed out in the order of ROOMS: long ones first, so that no worker has long to go alone.

Every worker collects every file. In a fresh clone each would compile them all, in step with the others: so a
worker begins with a share of its own, and finds the rest compiled. What it inherits is set right at its
start: signals that a shell ignores, what the garbage collector looks at.
"""

from __future__ import annotations

import contextlib
import gc
import signal
from collections.abc import Generator, Iterable
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.suite.last_use import SHARED

ROOMS: Final = ("spark", "chaos", "compat", "cli", "users", "robustness", "tidy", "seeds", "property")
"""Below tests/; the others follow."""
LAST_SHARING: Final = ROOMS.index("cli")
"""So far tests share nodes; these end then (last_use.py)."""
TOOLS: Final = tuple(
    f"tests/compat/test_{name}"
    for name in (
        "kafka_tools", "consumer_groups_jvm", "metadata_jvm", "read_from_followers", "replica_moves",
        "secured_tools", "snapshots", "transactions_jvm",
    )
)  # fmt: skip
TOGETHER: Final = (("tests/spark/",), ("tests/tidy/",), TOOLS)
"""One Spark is enough, and one JVM for Apache Kafka's tools; and to parse every file once."""

GC_THRESHOLDS: Final = (20_000, 20, 20)
"""What most tests leave behind is freed by counting references."""

HANDLERS: Final = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
"""What a terminal sends, to a program that it runs in its foreground."""

APART: Final = ("tests/unit/simulator/test_more_seeds.py",)


class InRooms(LoadScopeScheduling):
    """As `--dist=loadfile`, but for TOGETHER."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path in APART:
            return nodeid
        return next((files[0] for files in TOGETHER if path.startswith(files)), path)


def _place(item: pytest.Item, *, shares_nodes: bool) -> int:
    """Of its room; no later than where nodes are shared, for a file that does."""
    parts = item.nodeid.split("/")
    place = ROOMS.index(parts[1]) if parts[1] in ROOMS else len(ROOMS)
    return min(place, LAST_SHARING) if shares_nodes else place


def _import_share(config: pytest.Config) -> None:
    """Without a word of what fails: collection imports it again and tells. What only warns fails on the other
    workers, whose share it is not."""
    worker = getattr(config, "workerinput", {"workercount": 1})
    if worker["workercount"] == 1:
        return
    files = sorted(_files(config.rootpath / argument.partition("::")[0] for argument in config.args))
    number = int(worker["workerid"].removeprefix("gw"))
    for file in files[number :: worker["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def _files(paths: Iterable[Path]) -> set[Path]:
    return {file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else (path,))}


class Workers:
    """A pytest plugin, for the controller and for the workers."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Under nohup, or in a shell's background, signals are ignored; what tests start would inherit it."""
        for number, handler in HANDLERS.items():
            if signal.getsignal(number) == signal.SIG_IGN and hasattr(config, "workerinput"):
                signal.signal(number, handler)

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadScopeScheduling:
        return InRooms(config, log)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """What is imported and collected stays to the end: the garbage collector need not look at it."""
        gc.disable()
        try:
            _import_share(session.config)
            return (yield)
        finally:
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            gc.enable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        sharing = {item.path for item in items if SHARED in getattr(item, "fixturenames", ())}
        items.sort(key=lambda item: _place(item, shares_nodes=item.path in sharing))
