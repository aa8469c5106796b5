"""`kraft`: gathers the groups of commands into one tree.

Packages above kraft add groups of their own by an entry point of `kraft.commands`; they are loaded only for a
command that is not here, or for the list of all.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kraft.cli import (
    acl,
    broker,
    cluster,
    config,
    console,
    doctor,
    elect,
    features,
    group,
    log,
    metadata,
    perf,
    quorum,
    quota,
    reassign,
    start,
    storage,
    top,
    topic,
    txn,
    user,
)
from kraft.cli.command_config import with_option
from kraft.cli.errors import ReaderHasEnded, plain_errors
from kraft.cli.tables import with_output
from kraft.variant import described

COMMANDS = "kraft.commands"
WIDEST_HELP = 140
"""Columns; a narrower terminal's own width counts."""


class CommandTree(TyperGroup):
    """The commands below, and those of entry points."""

    # Any: whose click it is, its own or the package, depends on typer's version.
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            for entry in entry_points(group=COMMANDS, name=cmd_name):
                found = typer.main.get_command(entry.load())
        return None if found is None else with_output(with_option(found))

    def invoke(self, ctx: Any) -> Any:
        """Raises ReaderHasEnded: of a closed pipe click itself would make exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderHasEnded from None

    def list_commands(self, ctx: Any) -> list[str]:
        added = {entry.name for entry in entry_points(group=COMMANDS)}
        return [*super().list_commands(ctx), *sorted(added)]


cli = typer.Typer(
    name="kraft",
    cls=CommandTree,
    help="A replicated Kafka in Python. `kraft up` starts three nodes; stock Kafka clients can use them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # expected errors are one sentence; a bug shows its traceback
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST_HELP},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(described())
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="What this is, and how it runs."
        ),
    ] = False,
) -> None:
    pass


cluster.add_to(cli)
start.add_to(cli)
console.add_to(cli)
elect.add_to(cli)
doctor.add_to(cli)
top.add_to(cli)
cli.add_typer(topic.app, name="topic", help="Create, list, describe, alter and delete topics.")
cli.add_typer(config.app, name="config", help="Read and change configurations of topics and brokers.")
cli.add_typer(group.app, name="group", help="Consumer groups: how far they are; move them, delete them.")
cli.add_typer(txn.app, name="txn", help="Transactions: which there are, and how to abort one.")
cli.add_typer(
    broker.app, name="broker", help="Brokers: which there are, what they speak, what their disks hold."
)
cli.add_typer(features.app, name="features", help="Levels of the features that the cluster runs at.")
cli.add_typer(reassign.app, name="reassign", help="Move partitions to other brokers.")
cli.add_typer(quorum.app, name="quorum", help="The metadata quorum.")
cli.add_typer(quota.app, name="quota", help="What clients may use.")
cli.add_typer(user.app, name="user", help="Users that log in by SCRAM.")
cli.add_typer(acl.app, name="acl", help="Who may do what.")
cli.add_typer(metadata.app, name="metadata", help="The metadata log.")
cli.add_typer(log.app, name="log", help="Files of partitions.")
cli.add_typer(storage.app, name="storage", help="Prepare a node's directories.")
cli.add_typer(perf.app, name="perf", help="Measure a cluster: throughput and latency.")
cli.add_typer(cluster.node, name="node", help="Nodes of `kraft up`: list, kill, stop, pause, resume, start.")


def app() -> None:
    """Run the command of sys.argv; `kraft/__main__.py` calls it."""
    with plain_errors():
        cli()
