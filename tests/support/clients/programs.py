"""Clients in other languages: programs beside the tests, built once, run as `PROGRAM STORY BOOTSTRAP NAME`.

Their libraries are pinned there (go.sum, package-lock.json; the Java client is the one that Apache Kafka's
tools use) and fetched by the language's own tool. Where that tool or the library cannot be had, tests skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.kafka.kafka_tools import JVM

SOURCES: Final = Path(__file__).parents[2] / "compat"
BUILD_PATIENCE_S: Final = 600
STORY_PATIENCE_S: Final = 300
NO_NETWORK: Final = ("dial tcp", "no such host", "ENOTFOUND", "ECONNREFUSED", "EAI_AGAIN", "ETIMEDOUT")
"""What npm and Go say of it."""


@dataclass(frozen=True)
class Program:
    """`program(story, bootstrap, name)`: what it printed as JSON; it must end well."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, story: str, bootstrap: str, name: str) -> Any:
        done = subprocess.run(
            [*self.command, story, bootstrap, name],
            env={**os.environ, **self.environment},
            capture_output=True, text=True, timeout=STORY_PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]
        return json.loads(done.stdout.splitlines()[-1])


def go_program(package: str, directory: Path) -> Program:
    """A package of tests/compat/go."""
    need("go")
    binary = directory / package
    build(["go", "build", "-o", str(binary), f"./{package}"], SOURCES / "go")
    return Program([str(binary)])


def node_program(script: str, directory: Path) -> Program:
    """A script of tests/compat/node."""
    need("node", "npm")
    for name in (script, "package.json", "package-lock.json"):
        shutil.copy(SOURCES / "node" / name, directory)
    build(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], directory)
    return Program(["node", str(directory / script)], {"KAFKAJS_NO_PARTITIONER_WARNING": "1"})


def java_program(main: str, directory: Path, jars: Path) -> Program:
    """A class of tests/compat/java."""
    need("java", "javac")
    source = SOURCES / "java" / f"{main}.java"
    build(["javac", "-cp", f"{jars}/*", "-d", str(directory), str(source)], directory)
    return Program(["java", *JVM, "-cp", f"{directory}{os.pathsep}{jars}/*", main])


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on PATH")


def build(command: Sequence[str], directory: Path) -> None:
    """A library that cannot be fetched is a reason to skip; a program that does not compile is none."""
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=BUILD_PATIENCE_S, check=False
    )
    printed = (done.stdout + done.stderr).strip()[-2_000:]
    if done.returncode != 0 and any(sign in printed for sign in NO_NETWORK):
        pytest.skip(f"{command[0]} could not fetch its libraries: {printed[-300:]}")
    assert done.returncode == 0, printed
