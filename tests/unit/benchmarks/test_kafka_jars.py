"""Where Apache Kafka cannot run, the bench says why and goes on without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cluster import SystemSkipped
from benchmarks.kafka import find_jars
from benchmarks.maven import LOCK


def executable(directory: Path, name: str, script: str = "exit 1") -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH and cache."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KRAFT_KAFKA_JARS", raising=False)
    return directory


def test_without_java(programs: Path) -> None:
    with pytest.raises(SystemSkipped, match="no java"):
        find_jars()


def test_without_maven(programs: Path) -> None:
    executable(programs, "java")
    with pytest.raises(SystemSkipped, match="no mvn"):
        find_jars()


def test_a_named_directory_without_kafka(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(programs, "java")
    monkeypatch.setenv("KRAFT_KAFKA_JARS", str(tmp_path))
    with pytest.raises(SystemSkipped, match=r"holds no kafka_2\.13"):
        find_jars()


def test_a_failed_fetch_says_why_and_leaves_but_its_lock(programs: Path, tmp_path: Path) -> None:
    executable(programs, "java")
    executable(programs, "mvn", "echo 'cannot reach the registry'; exit 1")
    with pytest.raises(SystemSkipped, match="cannot reach the registry"):
        find_jars()
    assert [each.name for each in (tmp_path / "cache" / "kraft").iterdir()] == [LOCK]
