"""Jars by Maven: fetched once, however many ask at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.cluster import SystemSkipped
from benchmarks.maven import Artifact, fetch_jars

ARTIFACT = Artifact("org.example", "made-up", "1")
FETCHES = """#!/bin/sh
echo fetched >> "$FETCHED"
for word; do case $word in -DoutputDirectory=*) mkdir "${word#-DoutputDirectory=}" ;; esac; done
"""
FAILS = """#!/bin/sh
echo no such artifact
exit 1
"""


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A line in it for each time that Maven has fetched."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FETCHED", str(tmp_path / "fetched"))
    return tmp_path / "fetched"


def maven(directory: Path, does: str) -> None:
    (directory / "mvn").write_text(does)
    (directory / "mvn").chmod(0o755)


def test_of_many_that_want_them_at_once_one_fetches_them(tmp_path: Path, fetched: Path) -> None:
    maven(tmp_path, FETCHES)
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: fetch_jars("made-up", [ARTIFACT]), range(4)))
    assert found == {tmp_path / "cache/kraft/made-up"}
    assert fetched.read_text().split() == ["fetched"]


def test_what_could_not_be_fetched_is_asked_for_again(tmp_path: Path, fetched: Path) -> None:
    maven(tmp_path, FAILS)
    with pytest.raises(SystemSkipped, match="no such artifact"):
        fetch_jars("made-up", [ARTIFACT])
    maven(tmp_path, FETCHES)
    assert fetch_jars("made-up", [ARTIFACT]).is_dir()
