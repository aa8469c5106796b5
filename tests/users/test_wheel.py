"""The wheel in an environment of its own, beside an application whose modules have our packages' names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft.local.local_cluster import LocalCluster
from kraft.own_packages import PACKAGES

pytestmark = [pytest.mark.long, pytest.mark.row("U3")]

ROOT = Path(__file__).parents[2]

APPLICATION = {
    "fetch.py": "LEFT = 'Berlin'",
    "chaos/__init__.py": "",
    "chaos/monkey.py": "NAME = 'Kiki'",
    "data_plane.py": "WINGS = 2",
    "test_application.py": """
import pytest

import data_plane
import fetch
from chaos import monkey
from kraft.testing import cluster


def test_its_own_modules_beside_ours(kraft_cluster):
    kraft_cluster.create_topic("flights", partitions=2)
    kraft_cluster.restart(kraft_cluster.leader("flights"))
    assert (fetch.LEFT, monkey.NAME, data_plane.WINGS) == ("Berlin", "Kiki", 2)


def test_what_is_in_the_way_of_links_is_named():
    with pytest.raises(ImportError, match="application/chaos/__init__.py shadows kraft's package chaos"):
        with cluster(nodes=1, links=True):
            pass
""",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with our wheel; what kraft depends on is this environment's."""
    source, home = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("environment")
    for name in (*PACKAGES, "pyspark_kraft", "build_backend"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    interpreter = home / "bin" / "python"
    # Offline: the build backend is in uv's cache since `make setup` has installed kraft.
    uv = [str(Path(sysconfig.get_path("scripts")) / "uv"), "--quiet", "--offline"]
    subprocess.run([*uv, "build", "--wheel", "--out-dir", source / "dist", source], check=True)
    (wheel,) = (source / "dist").glob("*.whl")
    subprocess.run([*uv, "pip", "install", "--no-deps", "--python", interpreter, wheel], check=True)
    # A line of a .pth file is a path; .pth files there (our editable install) are not read.
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return interpreter


@pytest.fixture
def application(tmp_path: Path) -> Path:
    for name, text in APPLICATION.items():
        path = tmp_path / "application" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "application"


@pytest.fixture(params=["", "."], ids=["folder", "PYTHONPATH"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where the application's modules are found: by the folder that Python starts in, or everywhere."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    return inherited | ({"PYTHONPATH": request.param} if request.param else {})


def run(
    python: Path, application: Path, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments],
        cwd=application, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_an_applications_tests_with_the_fixtures(
    python: Path, application: Path, environment: dict[str, str]
) -> None:
    done = run(python, application, environment, "-m", "pytest", "-p", "no:cacheprovider")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.fixture
def detached(tmp_path: Path) -> Iterator[Path]:
    """The directory of nodes that outlive the command that starts them."""
    directory = tmp_path / "nodes"
    yield directory
    if (directory / "cluster.json").exists():
        LocalCluster.attach(directory).close(patience_s=0)


def test_the_command_line_and_its_nodes_in_the_applications_folder(
    python: Path, application: Path, environment: dict[str, str], detached: Path, free_row: Callable[[], int]
) -> None:
    place = ("--dir", str(detached), "--port", str(free_row()))
    done = run(python, application, environment, "-m", "kraft", "up", "--detach", "--nodes", "1", *place)
    assert done.returncode == 0, done.stdout + done.stderr
    (node,) = LocalCluster.attach(detached).nodes.values()
    process = node.process()
    assert process is not None
    assert process.cmdline()[0] == str(python)


def test_spark_finds_the_format_and_hears_which_file_is_in_its_way(
    python: Path, application: Path, environment: dict[str, str]
) -> None:
    look_up = "from pyspark_kraft import DefaultSource; print(DefaultSource.name(), DefaultSource.__name__)"
    shadowed = run(python, application, environment, "-c", f"{look_up}; DefaultSource({{}})")
    assert shadowed.stdout == "kraft ShadowedSource\n"
    assert f"{application}/fetch.py shadows kraft's package fetch: give it another name" in shadowed.stderr
    (application / "fetch.py").unlink()  # of the other names the connector imports none
    assert run(python, application, environment, "-c", look_up).stdout == "kraft KraftDataSource\n"
