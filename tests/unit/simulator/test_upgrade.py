"""Nodes of an older version are upgraded one by one, under load and faults: versions work together, what the
older one has written the newer one reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from chaos.simulator.cluster import Cluster, RunningNode
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Simulation
from chaos.simulator.software import PACKAGES, THIS, Software, older

pytestmark = pytest.mark.usefixtures("silent")

BASE = "bdd9833ada1dc029e01f7edb93aa8cd44475c3c0"
"""The oldest whose nodes tell what the cluster decides, as the story asks them to."""
ROOT = Path(__file__).parents[3]
SECONDS = 20.0


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Software]:
    """That version, from the repository's history."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("an older version is taken from git, and there is none here")
    archived = subprocess.run(
        [git, "archive", BASE, *sorted(PACKAGES)], cwd=ROOT, capture_output=True, check=False
    )
    if archived.returncode != 0:
        pytest.skip(f"the history here does not reach back to {BASE[:9]}")
    directory = tmp_path_factory.mktemp("base")
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as archive:
        archive.extractall(directory, filter="data")
    finders, modules = list(sys.meta_path), set(sys.modules)
    yield older(directory)
    sys.meta_path[:] = finders
    for name in sys.modules.keys() - modules:
        if name.startswith("older_"):
            del sys.modules[name]


def versions_of(cluster: Cluster) -> list[tuple[int, str]]:
    """Of each process that starts: its node, and the package of its code."""
    started: list[tuple[int, str]] = []

    def note(node_id: int, running: RunningNode) -> None:
        started.append((node_id, type(running.node).__module__.partition(".")[0]))

    cluster.on_start.append(note)
    return started


@pytest.mark.heavy
@pytest.mark.row("C7")
def test_nodes_of_an_older_version_are_upgraded_one_by_one(base: Software) -> None:
    profile = PROFILES["upgrade"]
    simulation = Simulation(2, profile, SECONDS, software=base)
    started = versions_of(simulation.cluster)
    outcome = simulation.run()
    assert outcome.violations == []
    assert outcome.story.visited["upgrade"] == 1
    older_ones = [node_id for node_id, package in started if package.startswith("older_")]
    newer_ones = [node_id for node_id, package in started if package == "kraft"]
    assert set(older_ones) == set(newer_ones) == set(profile.shape.nodes)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 23))
def test_upgrades_hold(base: Software, seed: int) -> None:
    assert Simulation(seed, PROFILES["upgrade"], SECONDS, software=base).run().violations == []


def test_an_older_version_is_whole(base: Software) -> None:
    """It has its own of everything; PySyncObj too, to which each version gives its clock."""
    name = base.node.__module__.partition(".")[0]
    assert base.format_storage.__module__.startswith(f"{name}.")
    assert base.node is not THIS.node
    for module in ("kraft.wire.decoding", "metadata_quorum.raft.syncobj", "pysyncobj.syncobj"):
        assert sys.modules[f"{name}.{module}"] is not sys.modules[module]


def test_what_cannot_be_renamed_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "kraft" / "storage"
    package.mkdir(parents=True)
    (package / "formatter.py").write_text("import kraft.storage\n")
    with pytest.raises(ImportError, match=r"line 1: import kraft\.storage: only `from` can be renamed"):
        older(tmp_path)
