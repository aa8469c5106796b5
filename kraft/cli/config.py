"""`kraft config`: read and change configurations of topics and brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, ReadingBootstrap, key_values
from kraft.cli.errors import CliError, UsageError
from kraft.cli.resource_configs import OWN_SOURCES, change, entries_of
from kraft.cli.tables import prints_table, show
from kraft.cli.wire_client import broker_address, topics

app = typer.Typer(no_args_is_help=True)


class EntityType(StrEnum):
    """What a configuration belongs to."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


EntityTypeArgument = Annotated[EntityType, typer.Argument(metavar="topic|broker|group", show_choices=False)]
Name = Annotated[str, typer.Argument(help="A topic's name, a node's id; '' for all brokers.")]


@app.command()
@prints_table
def get(
    kind: EntityTypeArgument,
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="[KEY]...", help="Only these.")] = [],  # noqa: B006
    all_: Annotated[bool, typer.Option("--all", help="Defaults too.")] = False,
    bootstrap: ReadingBootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show what is set; with --all, or by key, also defaults."""
    _require(kind, name, bootstrap)
    entries = entries_of(bootstrap, kind.value, name)
    if missing := [key for key in keys if key not in entries]:
        raise CliError(f"{', '.join(missing)}: not a configuration of a {kind.value}")
    rows = [
        (key, entry.value, entry.source, "yes" if entry.is_read_only else "no")
        for key, entry in sorted(entries.items())
        if key in keys or (not keys and (all_ or entry.source in OWN_SOURCES[kind.value]))
    ]
    show(("key", "value", "source", "read-only"), rows)


@app.command("set")
def set_(
    kind: EntityTypeArgument,
    name: Name,
    pairs: Annotated[list[str], typer.Argument(metavar="[KEY=VALUE]...")] = [],  # noqa: B006
    delete: Annotated[list[str], typer.Option(metavar="KEY", help="Back to its default.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change some configurations, leave the others."""
    if not pairs and not delete:
        raise UsageError("nothing to set: give KEY=VALUE or --delete KEY")
    if kind is not EntityType.BROKER:
        _require(kind, name, bootstrap)
    change(bootstrap, kind.value, name, key_values(pairs, "a configuration"), delete)
    print(f"Changed the configuration of {kind.value} {name}." if name else "Changed that of all brokers.")


def _require(kind: EntityType, name: str, bootstrap: str) -> None:
    """Raises CliError where there is nothing of that name; a group may be configured before it is there."""
    if kind is EntityType.TOPIC:
        topics(bootstrap, [name])
    elif kind is EntityType.BROKER:
        if name:
            broker_address(bootstrap, name)
    elif not name:
        raise UsageError(f"which {kind.value}? Give its name")
