"""Applies each mutant to a copy of the sources, runs the tests that must find it, and prints the table.

    python -m tests.mutants.run [NAME ...]

A mutant that no test finds is a missing oracle, and the exit code is 1. So is a test that fails without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.mutant import Mutant
from tests.mutants.table import MUTANTS

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = ("chaos", "data_plane", "fetch", "kraft", "metadata_quorum", "spark_connector", "tests")
TIMEOUT_S: Final = 1200.0
FOUND: Final = 1
"""The exit code of pytest where a test failed; others mean that it did not come to that."""
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Hunt(NamedTuple):
    mutant: Mutant
    found_by: str | None
    took_s: float
    output: str


def main(names: Sequence[str]) -> int:
    mutants = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = copied(Path(directory))
        hunts = []
        for mutant in mutants:
            hunts.append(hunt(copy, mutant))
            print(row(hunts[-1]), flush=True)
        healthy = pytest(copy, sorted({finder for mutant in mutants for finder in mutant.finders}))
    if healthy.returncode != 0:
        print(f"{healthy.stdout[-4000:]}\nthese fail without any mutant")
        return 1
    survivors = [each for each in hunts if each.found_by is None]
    for each in survivors:
        print(f"\n{each.mutant.name} survives:\n{each.output[-2000:]}")
    print(f"\n{len(hunts) - len(survivors)} of {len(hunts)} found")
    return 1 if survivors else 0


def copied(directory: Path) -> Path:
    for name in COPIED:
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", directory)
    shutil.copytree(ROOT / "docs", directory / "docs")
    return directory


@contextmanager
def applied(copy: Path, mutant: Mutant) -> Iterator[None]:
    """Within the block the sources have the bug."""
    originals = {edit.path: (copy / edit.path).read_text() for edit in mutant.edits}
    try:
        for edit in mutant.edits:
            text = (copy / edit.path).read_text()
            assert text.count(edit.before) == 1, (mutant.name, edit.path, text.count(edit.before))
            (copy / edit.path).write_text(text.replace(edit.before, edit.after))
        yield
    finally:
        for path, text in originals.items():
            (copy / path).write_text(text)


def hunt(copy: Path, mutant: Mutant) -> Hunt:
    with applied(copy, mutant):
        began = time.monotonic()
        ran = pytest(copy, mutant.finders)
        took_s = time.monotonic() - began
    failed = FAILED.search(ran.stdout)
    is_found = ran.returncode == FOUND and failed is not None
    return Hunt(mutant, failed[1] if is_found and failed else None, took_s, ran.stdout + ran.stderr)


def pytest(copy: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """`python -m` puts the copy in front of what is installed. Bytecode of an older edit could be taken for
    that of a newer one made within the same second."""
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-n",
        "0",
        "-q",
        "-x",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-m",
        "not long",
    ]
    return subprocess.run(
        [*command, *tests], cwd=copy, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def row(each: Hunt) -> str:
    found_by = "**survives**" if each.found_by is None else f"`{each.found_by.removeprefix('tests/')}`"
    mutant = each.mutant
    return f"| {mutant.name} | {mutant.source} | {mutant.broken} | {found_by} | {each.took_s:.0f} s |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
