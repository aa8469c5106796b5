"""Puts a table that a benchmark has written into docs/PERFORMANCE.md: no figure there is typed.

    python -m benchmarks.page figures bench-results/20261121-035702.md
    python -m benchmarks.page spark bench-results/20261121-083310-spark.md

Between the comments `<!-- NAME -->` and `<!-- /NAME -->`, with the day of the run.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

PAGE = Path("docs/PERFORMANCE.md")


def filled(page: str, name: str, text: str) -> str:
    """The page with `text` in its section. Raises `ValueError` where it has none of that name."""
    before, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not begin or not end:
        raise ValueError(f"there is no section '{name}'")
    return f"{before}{begin}\n{text.strip()}\n\n{end}{after}"


def main(
    name: Annotated[str, typer.Argument(help="The section.")],
    table: Annotated[Path, typer.Argument(help="What the benchmark has written.", exists=True)],
    page: Annotated[Path, typer.Option(help="The page.", exists=True)] = PAGE,
) -> None:
    """Fill a section of the page."""
    day = datetime.strptime(table.name[:8], "%Y%m%d").date()  # noqa: DTZ007 (UTC, as the name has it)
    page.write_text(filled(page.read_text(), name, f"Measured on {day}.\n\n{table.read_text()}"))


if __name__ == "__main__":
    typer.run(main)
