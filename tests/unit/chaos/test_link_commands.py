"""`kraft chaos link` where it refuses. With a cluster: tests/chaos/test_link_cluster.py."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from chaos.live.commands import link
from kraft.cli.errors import CliError
from kraft.local.local_cluster import LocalCluster


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a cluster that does not run."""
    LocalCluster.create(tmp_path, nodes=2, port=20_000)
    return tmp_path


def test_an_unquoted_link_is_reported_where_it_is_seen(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cut 2>1` is `cut` with standard error in a file named 1."""
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with pytest.raises(CliError, match="which link"):
        link(["cut"], directory)
    assert "in a shell, quote the link" in screen.getvalue()


def test_a_cluster_that_does_not_run(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CliError, match=r"no node of the cluster in .* runs"):
        link(["cut", "2>1"], directory)
    link(["list"], directory)
    assert capsys.readouterr().out == ""
    link(["heal"], directory)
    assert capsys.readouterr().out == "Healed all links.\n"
