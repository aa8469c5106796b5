"""Jars by Maven: fetched once, however many ask at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.maven import Artifact, fetch_jars

ARTIFACT = Artifact("org.example", "made-up", "1")
FETCHES = """#!/bin/sh
echo fetched >> "$FETCHED"
for word; do case $word in -DoutputDirectory=*) mkdir "${word#-DoutputDirectory=}" ;; esac; done
"""


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A line in it for each time that Maven has fetched."""
    (tmp_path / "mvn").write_text(FETCHES)
    (tmp_path / "mvn").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FETCHED", str(tmp_path / "fetched"))
    return tmp_path / "fetched"


def test_of_many_that_want_them_at_once_one_fetches_them(tmp_path: Path, fetched: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: fetch_jars("made-up", [ARTIFACT]), range(4)))
    assert found == {tmp_path / "cache/kraft/made-up"}
    assert fetched.read_text().split() == ["fetched"]
