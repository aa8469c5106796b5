"""What many tests share ends after the last of them that a worker may run."""

from __future__ import annotations

from types import SimpleNamespace

from tests.support.suite.last_use import SHARED, LastUse


def item(nodeid: str, *fixtures: str) -> SimpleNamespace:
    return SimpleNamespace(nodeid=nodeid, fixturenames=["tmp_path", *fixtures])


def test_what_is_shared_ends_when_nobody_will_ask_for_it():
    items = [
        item("first", SHARED),
        item("second"),
        item("third", "cluster", SHARED),
        item("fourth"),
        item("fifth"),
    ]
    ended: list[str] = []
    plugin, shared = LastUse(), SimpleNamespace(argname=SHARED, finish=ended.append)
    plugin.pytest_collection_finish(SimpleNamespace(items=items))
    plugin.pytest_fixture_setup(shared, "request")
    plugin.pytest_fixture_setup(SimpleNamespace(argname="tmp_path"), "request")
    for each in items[:3]:
        plugin.pytest_runtest_setup(each)
    assert ended == []
    for each in items[3:]:
        plugin.pytest_runtest_setup(each)
    assert ended == ["request"]
