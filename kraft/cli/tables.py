"""Rows for whoever reads them: a table with rules on a terminal, aligned plain text for pipes, and with
`--output json` a JSON document per table, in which names are what they are.

A command that prints a table is marked by `@prints_table`; `with_output` gives it the option.
"""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import typer

from kraft.cli.added_option import option_of
from kraft.cli.printable import printable

WIDEST: Final = 10_000
"""Columns of a terminal: to ask how many a table needs."""

_MARK: Final = "prints_table"
Command = TypeVar("Command", bound=Callable[..., None])


class Output(StrEnum):
    """How tables are printed."""

    TEXT = "text"
    JSON = "json"


_in_use: ContextVar[Output] = ContextVar("output", default=Output.TEXT)
"""The output format of the command that runs."""


def show(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    title: str = "",
    about: Mapping[str, object] | None = None,
    one_line: bool = False,
) -> None:
    """Print. In text, cells are turned into text, None into a dash. `about`: what holds for all rows, in
    lines (or `one_line`) before the table; as JSON, members beside `rows`."""
    if _in_use.get() is Output.JSON:
        objects = [dict(zip(columns, map(_plain, row), strict=True)) for row in rows]
        document = objects if about is None else {**_members(about), "rows": objects}
        print(json.dumps(document, indent=1))
        return
    facts = [printable(f"{name}: {value}".rstrip()) for name, value in (about or {}).items()]
    if facts:
        print(*facts, sep="  " if one_line else "\n")
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _show_with_rules(columns, cells, title)
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    for line in (list(columns), *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_names(column: str, names: Sequence[str]) -> None:
    """Print a table of one column: in text a line each and no header, for the shell's loops."""
    if _in_use.get() is Output.JSON:
        show((column,), [(name,) for name in names])
        return
    for name in names:
        print(printable(name))


def show_facts(about: Mapping[str, object]) -> None:
    """Print what is known of one thing, a line each, or as a JSON object."""
    if _in_use.get() is Output.JSON:
        print(json.dumps(_members(about), indent=1))
        return
    for name, value in about.items():
        print(printable(f"{name}: {'-' if value is None else value}"))


def _show_with_rules(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    size = shutil.get_terminal_size()  # as --help has it; rich takes 80 columns where TERM=dumb
    console = Console(width=size.columns, height=size.lines)
    if Measurement.get(console, console.options.update(max_width=WIDEST), table).minimum <= console.width:
        console.print(table)
        return
    for number, row in enumerate(cells):  # too narrow for whole words: a block per row
        print(*([""] if number else []), *_block(columns, row, console.width), sep="\n")


def _block(columns: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """`column: value`, as many in a line as there is room for."""
    lines: list[str] = []
    for name, cell in zip(columns, row, strict=True):
        pair = f"{name}: {cell}"
        if lines and len(lines[-1]) + len(pair) + 2 <= width:
            lines[-1] += f"  {pair}"
        else:
            lines.append(pair)
    return lines


def _plain(cell: object) -> object:
    return cell if cell is None or isinstance(cell, (int, float)) else str(cell)


def _members(about: Mapping[str, object]) -> dict[str, object]:
    return {name: _plain(value) for name, value in about.items()}


def prints_table(command: Command) -> Command:
    """Marks a command's function."""
    setattr(command, _MARK, True)
    return command


def with_output(command: Any) -> Any:
    """The command, or group of commands, with `--output` wherever a table is printed."""
    for inner in getattr(command, "commands", {}).values():
        with_output(inner)
    if getattr(command.callback, _MARK, False) and all(param.name != "output" for param in command.params):
        command.params.append(_option())
    return command


def _use(ctx: typer.Context, value: Output) -> Output:
    ctx.call_on_close(functools.partial(_in_use.reset, _in_use.set(Output(value))))
    return value


@functools.cache
def _option() -> Any:
    def template(
        output: Annotated[
            Output,
            typer.Option("--output", "-O", callback=_use, expose_value=False, help="How tables are printed."),
        ] = Output.TEXT,
    ) -> None:
        """A command of which only the option is used."""

    return option_of(template)
