"""`kraft`: gathers the groups of commands into one tree."""

from __future__ import annotations

import typer

from kraft.cli import cluster, config, console, elect, log, metadata, perf, quorum, start, storage, topic
from kraft.cli.trouble import plain_trouble

cli = typer.Typer(
    name="kraft",
    help="A replicated Kafka in Python. `kraft up` starts three nodes; stock Kafka clients can use them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # expected trouble is one sentence; a bug deserves a whole traceback
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cluster.add_to(cli)
start.add_to(cli)
console.add_to(cli)
elect.add_to(cli)
cli.add_typer(topic.app, name="topic", help="Create, list, describe, alter and delete topics.")
cli.add_typer(config.app, name="config", help="Read and change configurations of topics and brokers.")
cli.add_typer(quorum.app, name="quorum", help="The metadata quorum.")
cli.add_typer(metadata.app, name="metadata", help="The metadata log.")
cli.add_typer(log.app, name="log", help="Files of partitions.")
cli.add_typer(storage.app, name="storage", help="Prepare a node's directories.")
cli.add_typer(perf.app, name="perf", help="Measure a cluster: throughput and latency.")
cli.add_typer(cluster.node, name="node", help="One node of `kraft up`: kill, stop, pause, resume, start.")


def app() -> None:
    """Run the command that was asked for; `kraft/__main__.py` calls it."""
    with plain_trouble():
        cli()
