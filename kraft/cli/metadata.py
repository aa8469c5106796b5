"""`kraft metadata`: what the quorum has agreed on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.bootstrap import any_broker
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Keeps `dump` a command of its own, though it is the only one."""


@app.command()
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="[FILE|DIR]...", help="Segments, checkpoints, directories of them."),
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the metadata records with offset and epoch; without files, those that a node serves."""
    from kraft.cli import metadata_lines

    lines = metadata_lines.from_files(files) if files else metadata_lines.from_node(*any_broker(bootstrap))
    for line in lines:
        print(line)
