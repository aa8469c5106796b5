"""Compiled or not: the list of what is, what the command line says, and that nobody tests an older source."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

import kraft.variant
from metadata_quorum.foundation.errors import FatalError
from tests.support.suite.compiled import ROOT, SUFFIX, listed_modules, source_of, stale


def test_every_listed_module_exists_once():
    listed = listed_modules()
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not source_of(ROOT, name).exists()] == []


def test_all_listed_modules_run_compiled_or_none():
    compiled = {find_spec(name).origin.endswith(SUFFIX) for name in listed_modules()}
    assert compiled == {kraft.variant.variant() == "compiled"}


def test_the_command_line_says_which():
    done = subprocess.run(
        [sys.executable, "-m", "kraft", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{kraft.variant.described()}\n"
    assert done.stdout.endswith((", compiled\n", ", pure Python\n"))


def test_what_was_compiled_from_an_older_source_is_found(tmp_path):
    folder = tmp_path / "kraft"
    folder.mkdir()
    for name, modified in (("fresh", 3), ("older", 1), ("unlisted", 3), ("compiled__mypyc", 1)):
        (folder / f"{name}.py").touch()
        os.utime(folder / f"{name}.py", (2, 2))
        (folder / f"{name}{SUFFIX}").touch()
        os.utime(folder / f"{name}{SUFFIX}", (modified, modified))
    assert stale(tmp_path, {"kraft.fresh", "kraft.older"}) == ["kraft.older", "kraft.unlisted"]


def test_a_node_does_not_start_with_modules_of_an_older_source(tmp_path, monkeypatch):
    """With callers of the new source around them every request could be answered with an error."""
    imported = []
    for name, compiled_at in (("kraft.fresh", 3), ("kraft.older", 1), ("somebody.elses", 1)):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / f"{name}{SUFFIX}")
        for path, time in ((module.__file__, compiled_at), (tmp_path / f"{name}.py", 2)):
            open(path, "w").close()
            os.utime(path, (time, time))
        imported.append(module)
    assert kraft.variant.stale_modules([*imported, sys, os]) == ["kraft.older"]
    monkeypatch.setitem(sys.modules, "kraft.older", imported[1])
    with pytest.raises(FatalError, match=r"older source: kraft\.older\. `make fast`"):
        kraft.variant.refuse_stale_modules()
    monkeypatch.delitem(sys.modules, "kraft.older")
    kraft.variant.refuse_stale_modules()
