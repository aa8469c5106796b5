"""docs/LABS.md: every command holds, and prints what the page promises; and the site that it is a page of."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.page_commands import DOCS, page, run_commands

pytestmark = pytest.mark.long

PATIENCE_S = 900
LOADED = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=\"?https?:|<link[^>]*stylesheet[^>]*href=\"?https?:")


class Lab(NamedTuple):
    title: str
    commands: str
    promised: list[str]
    """Beginnings of lines, up to the figures."""


def labs() -> list[Lab]:
    found = []
    for section in page("LABS.md").split("\n## ")[1:]:
        blocks = dict(re.findall(r"^```(sh|text)\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
        if "sh" in blocks:
            promised = [line.rpartition(": ")[0] or line for line in blocks.get("text", "").splitlines()]
            found.append(Lab(section.partition("\n")[0], blocks["sh"], promised))
    return found


@pytest.mark.row("C1")
@pytest.mark.parametrize("lab", labs(), ids=lambda lab: lab.title)
def test_a_lab(lab: Lab, tmp_path: Path) -> None:
    said = run_commands(lab.commands, tmp_path, PATIENCE_S)
    for promised in lab.promised:
        assert any(line.startswith(promised) for line in said), (promised, said[-30:])


def test_the_site_is_made_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs makes the site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    pages = {each.stem: each.read_text() for each in tmp_path.glob("*.html")}
    assert pages.keys() >= {each.stem for each in DOCS.glob("*.md")}
    assert not [name for name, text in pages.items() if LOADED.search(text)]
