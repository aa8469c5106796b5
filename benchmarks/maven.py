"""Jars by Maven, fetched once into the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import SystemSkipped

FETCH_TIMEOUT_S = 600
LOCK = "maven.lock"


@dataclass(frozen=True)
class Artifact:
    """What Maven is to fetch; with all that it needs, less what is `left_out`."""

    group: str
    name: str
    version: str
    left_out: tuple[tuple[str, str], ...] = ()
    """(group, name) of dependencies, `*` for any."""

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"

    def xml(self) -> str:
        exclusions = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
            for group, name in self.left_out
        )
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version><exclusions>{exclusions}</exclusions></dependency>"
        )


def cache() -> Path:
    """Where what was fetched is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraft"


def fetch_jars(name: str, artifacts: Sequence[Artifact]) -> Path:
    """The directory `name` of the cache with the jars, fetched if need be. Raises `SystemSkipped`."""
    jars = cache() / name
    if jars.is_dir():
        return jars
    if shutil.which("mvn") is None:
        raise SystemSkipped(f"there is no mvn on the PATH to fetch {artifacts[0]}")
    jars.parent.mkdir(parents=True, exist_ok=True)
    with (jars.parent / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two Mavens at once get into each other's repository
        if not jars.is_dir():  # else another process has fetched them meanwhile
            _fetch(jars, artifacts)
    return jars


def _fetch(jars: Path, artifacts: Sequence[Artifact]) -> None:
    # Beside their final place, then renamed: a broken fetch leaves nothing behind.
    with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            f"<groupId>kraft.benchmarks</groupId><artifactId>jars</artifactId><version>1</version>"
            f"<dependencies>{''.join(each.xml() for each in artifacts)}</dependencies></project>"
        )
        fetched = Path(scratch) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        try:
            done = subprocess.run(
                [*command, "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"],
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise SystemSkipped(f"mvn did not fetch {artifacts[0]} within {FETCH_TIMEOUT_S} s") from None
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
            raise SystemSkipped(f"mvn could not fetch {artifacts[0]}: {lines[0]}")
        fetched.rename(jars)
