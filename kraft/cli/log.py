"""`kraft log dump`: what is in the files of a partition, as kafka-dump-log prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.errors import CliError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Keeps `dump` a command of its own, though it is the only one."""


@app.command()
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help=".log, .index, .timeindex, .snapshot, checkpoints."),
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Records with keys and values, not only batches.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check CRCs and indexes; non-zero exit where wrong.")
    ] = False,
) -> None:
    """Print batches, records and index entries."""
    from data_plane.log import dump as dumps
    from metadata_quorum.foundation.disk import OsDisk

    disk = OsDisk()
    problems: list[str] = []
    for path in files:
        if not path.is_file():
            raise CliError(f"{path}: {'a directory: name files in it' if path.is_dir() else 'no such file'}")
        try:
            for line in dumps.dump(disk, str(path), print_records=records):
                print(line)
        except ValueError as error:
            raise CliError(str(error)) from None
        problems += dumps.verify(disk, str(path)) if verify else []
    if problems:
        raise CliError("\n".join(problems))
