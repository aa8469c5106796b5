"""Rows on a screen: a table with rules on a terminal, aligned plain text for pipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def show(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print; cells are turned into text, None into a dash."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    for line in (list(columns), *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
