"""`kraft start`: one node in this process."""

from __future__ import annotations

from typing import Annotated

import typer

from kraft.cli.confluent_client import key_values


def start(
    file: Annotated[
        str, typer.Argument(metavar="server.properties", help="Kafka's own keys; see docs/CONFIG.md.")
    ],
    override: Annotated[list[str], typer.Option("--override", help="KEY=VALUE that beats the file's.")] = [],  # noqa: B006
    owner: Annotated[
        int | None, typer.Option("--with", metavar="PID", help="End when that process ends.")
    ] = None,
) -> None:
    """Run one node, as broker, controller or both, until SIGTERM or Ctrl-C."""
    from kraft.node.process import run_node

    raise typer.Exit(run_node(file, key_values(override, "a configuration"), owner))


def add_to(cli: typer.Typer) -> None:
    """Hang the command into the tree."""
    cli.command()(start)
