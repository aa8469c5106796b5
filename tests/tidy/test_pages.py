"""The pages of docs/ hold together: each is in the site's nav, and every relative link leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def in_nav(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    else:
        for each in part.values() if isinstance(part, dict) else part:
            yield from in_nav(each)


def anchors(page: Path) -> set[str]:
    """As the site makes them of headings."""
    words = (
        re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in HEADING.findall(page.read_text())
    )
    return {re.sub(r"[\s-]+", "-", each) for each in words}


def test_each_page_stands_in_the_nav_once() -> None:
    yaml = pytest.importorskip("yaml", reason="the nav is YAML")
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(in_nav(site["nav"])) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
