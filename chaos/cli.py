"""`kraft chaos`: break a cluster on purpose, and judge what it did. Found by kraft's command line through
the entry point `kraft.commands`."""

from __future__ import annotations

import typer

from chaos.live import commands

app = typer.Typer(
    help="Break a cluster on purpose, and judge what it did.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
commands.add_to(app)
