"""What is published: the same bytes from the same sources, and in kraft-spark what a Spark executor needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from kraft.own_packages import PACKAGES
from tests.support.clients.rdkafka import QUIET, send

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}
UV = (str(Path(sysconfig.get_path("scripts")) / "uv"), "--quiet", "--offline")
"""Offline: the build backend is in uv's cache since `make setup` has installed kraft."""
BROKERS_ONLY = ("aiohttp", "uvloop", "typer", "pysyncobj", "sortedcontainers", "psutil", "re2", "rich")


def built(directory: Path) -> Mapping[str, Path]:
    """By the beginning of their names, from a copy of the sources with files of another time."""
    source, out = directory / "source", directory / "out"
    for name in (*PACKAGES, "pyspark_kraft", "build_backend"):
        skipped = shutil.ignore_patterns("__pycache__", "*.so", "build", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, ignore=skipped, copy_function=shutil.copyfile)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copyfile(ROOT / name, source / name)
    for arguments in ((source,), ("--wheel", source / "build_backend" / "spark")):
        subprocess.run([*UV, "build", "--out-dir", out, *arguments], check=True, env=os.environ | EPOCH)
    return {
        path.name.split("-")[0] + path.suffix: path
        for path in out.iterdir()
        if path.suffix in (".whl", ".gz")
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return built(tmp_path_factory.mktemp("first"))


def test_the_same_sources_give_the_same_bytes(first: Mapping[str, Path], tmp_path: Path) -> None:
    assert first.keys() == {"kraft.whl", "kraft.gz", "kraft_spark.whl"}
    second = built(tmp_path)
    assert [name for name in first if first[name].read_bytes() != second[name].read_bytes()] == []


def test_the_wheel_has_its_pages_and_not_the_tests(first: Mapping[str, Path]) -> None:
    names = set(zipfile.ZipFile(first["kraft.whl"]).namelist())
    assert {f"kraft/http/console/{path.name}" for path in (ROOT / "kraft/http/console").iterdir()} <= names
    assert {name.split("/")[0] for name in names if not name.startswith("kraft-")} == {
        *PACKAGES,
        "pyspark_kraft",
    }
    with tarfile.open(first["kraft.gz"]) as archive:
        assert all(member.mtime == int(EPOCH["SOURCE_DATE_EPOCH"]) for member in archive.getmembers())


def test_executors_read_with_the_slim_wheel(
    first: Mapping[str, Path], shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    bootstrap = shared_cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic("slim", 1, 1)])["slim"].result()
    send(bootstrap, "slim", [{"value": b"thin", "partition": 0}], acks="all")
    wheel = zipfile.ZipFile(first["kraft_spark.whl"])
    assert not [name for name in wheel.namelist() if name.startswith(("data_plane/", "chaos/", "kraft/api/"))]
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    subprocess.run(
        [*UV, "pip", "install", "--no-deps", "--python", python, first["kraft_spark.whl"]], check=True
    )
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    script = f"""
import sys
for name in {BROKERS_ONLY}:
    sys.modules[name] = None  # not to be imported
from pyspark_kraft import DefaultSource

source = DefaultSource({{"kafka.bootstrap.servers": "{bootstrap}", "subscribe": "slim"}})
reader = source.reader(source.schema())
for partition in reader.partitions():
    for batch in reader.read(partition):
        print(batch.to_pydict()["value"])
"""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-c", script],
        cwd=tmp_path,
        env=inherited,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout == "[b'thin']\n", done.stdout + done.stderr


def test_the_bill_of_materials_names_what_runs_and_not_what_tests() -> None:
    pytest.importorskip("cyclonedx", reason="an environment older than the lock file")
    command = [sys.executable, str(ROOT / "build_backend" / "sbom.py"), "chaos"]
    once, again = (
        subprocess.run(command, capture_output=True, check=True, env=os.environ | EPOCH) for _ in "12"
    )
    assert once.stdout == again.stdout
    told = json.loads(once.stdout)
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["component"]["name"] == "kraft"
    versions = {each["name"]: each["version"] for each in told["components"]}
    for name in ("aiohttp", "kio", "uvloop", "confluent-kafka", "greenlet", "multidict"):
        assert versions[name] == version(name)
    assert not {"pytest", "mypy", "ruff", "pyspark", "cyclonedx-python-lib"} & versions.keys()
    (root,) = [
        each for each in told["dependencies"] if each["ref"] == told["metadata"]["component"]["bom-ref"]
    ]
    assert f"aiohttp=={version('aiohttp')}" in root["dependsOn"]
