"""`kraft start`: one node in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.confluent_client import key_values

if TYPE_CHECKING:
    from kraft.config.node_config import Config


def start(
    file: Annotated[
        str, typer.Argument(metavar="server.properties", help="Kafka's own keys; see docs/CONFIG.md.")
    ],
    override: Annotated[list[str], typer.Option("--override", help="KEY=VALUE that beats the file's.")] = [],  # noqa: B006
    environment: Annotated[
        bool,
        typer.Option(
            "--environment",
            help="KAFKA_NODE_ID=1 and its like beat the file's, as in Apache Kafka's image; with CLUSTER_ID, "
            "directories that are not formatted are.",
        ),
    ] = False,
    owner: Annotated[
        int | None, typer.Option("--with", metavar="PID", help="End when that process ends.")
    ] = None,
) -> None:
    """Run one node, as broker, controller or both, until SIGTERM or Ctrl-C."""
    from kraft.config.environment import CLUSTER_ID, properties_of_environment
    from kraft.node.process import run_node, serve

    overrides = key_values(override, "a configuration")
    cluster_id = None
    if environment:
        overrides = properties_of_environment(os.environ) | overrides
        cluster_id = os.environ.get(CLUSTER_ID)

    def run(config: Config) -> int:
        if cluster_id:
            _format(config, cluster_id)
        return serve(config)

    raise typer.Exit(run_node(file, overrides, owner, run))


def _format(config: Config, cluster_id: str) -> None:
    """What is not formatted. A controller then waits until it has heard from all others: nobody vouches here
    that the cluster is new. Raises FatalError."""
    import random

    from kraft.storage.formatter import format_storage
    from metadata_quorum.foundation.disk import OsDisk

    format_storage(OsDisk(), config, cluster_id, random.SystemRandom(), ignore_formatted=True)


def add_to(cli: typer.Typer) -> None:
    """Hang the command into the tree."""
    cli.command()(start)
