"""`kraft down` beside a `kraft up` that still starts, and another `kraft up` at once behind it."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraft.cli import cluster as commands
from kraft.local.local_cluster import LocalCluster
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import ExitCode, FatalError

pytestmark = pytest.mark.row("U1")


class Sleepers(LocalCluster):
    """Their nodes do nothing."""

    def launch(self, module: str, arguments: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        return self.run_in_background([sys.executable, "-c", "import time; time.sleep(600)"], output)


def running(directory: Path) -> int:
    return sum(node.process() is not None for node in LocalCluster.attach(directory).nodes.values())


def test_what_has_not_started_any_node_yet_starts_none(tmp_path, capsys):
    """`kraft up` formats its directories, and checks its ports."""
    up = Sleepers.create(tmp_path, nodes=2)
    commands.down(tmp_path)
    assert capsys.readouterr().out.startswith("Stopped 0 of 2 nodes")
    with pytest.raises(FatalError, match=r"`kraft down --dir .*` has stopped it") as refused:
        up.start_all()
    assert refused.value.exit_code == ExitCode.REFUSED
    assert running(tmp_path) == 0


def test_nodes_that_are_stopped_while_one_waits_for_them_have_not_failed(tmp_path):
    up = Sleepers.create(tmp_path, nodes=2)
    up.start_node(1, wait=False)
    commands.down(tmp_path)
    with pytest.raises(FatalError, match="has stopped it"):
        up.wait_ready(started=(1,))
    up.close()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[LocalCluster, Callable[[], None]], None]:
    """`kraft up` from where its nodes run; what happens before it looks the next time."""

    def watched(up: LocalCluster, meanwhile: Callable[[], None]) -> None:
        monkeypatch.setattr(commands, "time", SimpleNamespace(sleep=lambda _: meanwhile()))
        commands.serve(up, lambda: up.start_node(1, wait=False), detach=False)
        up.close(patience_s=0)  # what the end of its process would do

    return watched


def test_the_nodes_of_the_next_one_are_not_watched(tmp_path, watched, capsys):
    """`kraft down && kraft up`: otherwise the first `kraft up` would stay, and its Ctrl-C stop them."""
    first, others = Sleepers.create(tmp_path, nodes=1, port=20_000), []

    def meanwhile() -> None:
        assert not others, "it looks again"
        commands.down(tmp_path)
        others.append(Sleepers.create(tmp_path, nodes=1, port=20_000))
        others[0].start_node(1, wait=False)

    try:
        watched(first, meanwhile)
        assert "no node is left" in capsys.readouterr().err
        assert running(tmp_path) == 1
    finally:
        for each in others:
            each.close(patience_s=0)


@pytest.mark.parametrize("is_taken_up", [True, False])
def test_an_interruption_stops_ones_own_nodes_alone(tmp_path, watched, is_taken_up):
    first, others = Sleepers.create(tmp_path, nodes=1, port=20_000), []

    def meanwhile() -> None:
        if is_taken_up:
            commands.down(tmp_path)
            others.append(Sleepers.create(tmp_path, nodes=1, port=20_000))
            others[0].start_node(1, wait=False)
        raise KeyboardInterrupt

    try:
        watched(first, meanwhile)
        assert running(tmp_path) == is_taken_up
    finally:
        for each in others:
            each.close(patience_s=0)


def test_nodes_that_are_being_stopped_are_watched_to_their_end(tmp_path, watched):
    """They end with the process that watches them, and would not do it in order."""
    up = Sleepers.create(tmp_path, nodes=1, port=20_000)
    looks = []

    def meanwhile() -> None:
        looks.append(running(tmp_path))
        noted = LocalCluster.attach(tmp_path)
        if len(looks) == 1:
            noted.run = "down"
            noted.save()
        elif len(looks) == 3:
            noted.close(patience_s=0)

    watched(up, meanwhile)
    assert looks == [1, 1, 1]


def test_after_the_end_of_its_nodes_none_is_started_for_them(tmp_path):
    """`kraft node start` behind `kraft down`: the `kraft up` that it would belong to is about to end."""
    Sleepers.create(tmp_path, nodes=1, port=20_000)
    commands.down(tmp_path)
    with pytest.raises(FatalError, match="belong to has ended"):
        Sleepers.attach(tmp_path).start_node(1, wait=False)
    detached = Sleepers.create(tmp_path, nodes=1, port=20_000, detached=True)
    commands.down(tmp_path)
    detached = Sleepers.attach(tmp_path)
    detached.start_node(1, wait=False)
    assert running(tmp_path) == 1
    detached.close(patience_s=0)


def test_nodes_are_stopped_though_nothing_can_be_written(tmp_path, monkeypatch, capsys):
    up = Sleepers.create(tmp_path, nodes=1, port=20_000)
    up.start_node(1, wait=False)

    def full(self: OsDisk, path: str, data: bytes, may_block: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(OsDisk, "write_atomic", full)
    commands.down(tmp_path)
    assert capsys.readouterr().out.startswith("Stopped 1 of 1 nodes")
    assert running(tmp_path) == 0
    up.close()


def test_where_there_is_no_cluster_nothing_is_written(tmp_path):
    with pytest.raises(FatalError, match="no cluster in"):
        commands.down(tmp_path)
    assert list(tmp_path.iterdir()) == []
