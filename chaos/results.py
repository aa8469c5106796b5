"""Where the record of a run goes: a directory of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from chaos.run_files import ALL, HISTORY, SCHEDULE, SIMULATED
from kraft.cli.errors import CliError

RESULTS: Final = Path("chaos-results")


def make_room(directory: Path) -> None:
    """Of an earlier run nothing may be left; what is not a run is not touched. Raises CliError."""
    if not directory.exists() or not any(directory.iterdir()):
        return
    if not any((directory / name).exists() for name in (HISTORY, SCHEDULE, f"{SIMULATED}/{SCHEDULE}")):
        raise CliError(f"{directory} is not empty, and not the directory of a run")
    for name in ALL:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
