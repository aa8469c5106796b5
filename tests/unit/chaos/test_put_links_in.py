"""Links for a cluster that runs without: its nodes are started again one by one, and somebody may be in a
hurry. With real nodes: tests/chaos/test_link_cluster.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import chaos.live.cluster as live
from chaos.live.cluster import put_links_in
from chaos.live.links import has_links
from chaos.live.toxiproxy import NAME
from chaos.live.wiring import Wiring
from kraft.cli.errors import CliError
from kraft.local.layout import LocalNode
from kraft.local.local_cluster import LocalCluster
from kraft.local.processes import LocalProcess

PORT = 20_000


class Stage:
    """Three nodes of which only the names are real; what is done to them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = LocalCluster.create(directory, nodes=3, port=PORT)
        self.up = {1, 2, 3}
        self.done: list[str] = []
        self.ctrl_c_at = ""
        ports = count(30_000)
        self.take_ports: Callable[[int], list[int]] = lambda n: [next(ports) for _ in range(n)]
        monkeypatch.setattr(LocalNode, "process", lambda node: node if node.id in self.up else None)
        monkeypatch.setattr(self.cluster, "stop", self._stop)
        monkeypatch.setattr(self.cluster, "start_node", self._start)
        monkeypatch.setattr(live, "run_beside", self._run_beside)
        monkeypatch.setattr(live, "out_of_sync", self._out_of_sync)

    def _do(self, what: str) -> None:
        if what == self.ctrl_c_at:
            self.ctrl_c_at = ""
            raise KeyboardInterrupt
        self.done.append(what)

    def _stop(self, node_id: int) -> None:
        self._do(f"stop {node_id}")
        self.up.discard(node_id)

    def _start(self, node_id: int) -> None:
        self._do(f"start {node_id}")
        self.up.add(node_id)

    def _out_of_sync(self, host: str, port: int) -> list[str]:
        self._do(f"sync {port - PORT + 1}")
        return []

    def _run_beside(self, cluster: LocalCluster, port: int, proxies: list[Any]) -> None:
        cluster.companions[NAME] = LocalProcess.of(os.getpid())
        self._do("run beside")

    def put_in(self) -> Wiring:
        return put_links_in(self.cluster, 1, lambda _: None, self.take_ports)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_every_node_is_started_again(stage: Stage) -> None:
    wiring = stage.put_in()
    assert [each for each in stage.done if each.startswith("start")] == ["start 1", "start 2", "start 3"]
    assert has_links(stage.cluster)
    assert Wiring.load(stage.cluster.directory) == wiring


@pytest.mark.parametrize("at", ["run beside", "sync 1", "stop 2", "start 2", "start 3"])
def test_what_was_interrupted_is_brought_to_its_end(stage: Stage, at: str) -> None:
    """Else a node would go past the links, and no fault would reach it."""
    stage.ctrl_c_at = at
    with pytest.raises(KeyboardInterrupt):
        stage.put_in()
    assert not has_links(stage.cluster)
    planned = Wiring.load(stage.cluster.directory)
    wiring = stage.put_in()
    assert has_links(stage.cluster)
    assert wiring.links == planned.links, "who goes through them already goes on"
    assert stage.up == {1, 2, 3}
    started = sorted(each for each in stage.done if each.startswith("start"))
    assert started == ["start 1", "start 2", "start 3"], "each once"


def test_a_cluster_of_which_nothing_runs_gets_none(stage: Stage) -> None:
    stage.up.clear()
    with pytest.raises(CliError, match="no node of the cluster"):
        stage.put_in()
