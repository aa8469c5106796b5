"""An option that is added to commands that do not declare it (tables.py, command_config.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer


def option_of(template: Callable[..., None]) -> Any:
    """The one option that a function declares, as whichever click typer uses has it. It is not passed on."""
    app = typer.Typer()
    app.command()(template)
    (option, *_) = typer.main.get_command(app).params
    option.expose_value = False
    return option
