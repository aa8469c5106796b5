"""`kraft storage`: prepare a node's directories, as kafka-storage does."""

from __future__ import annotations

import random
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.command("format")
def format_(
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", "-t", help="The same for all nodes of the cluster.")
    ],
    config: Annotated[str, typer.Option("--config", "-c", metavar="server.properties")],
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Leave directories that are formatted already.")
    ] = False,
    new_cluster: Annotated[
        bool,
        typer.Option(
            "--new-cluster",
            help="Vouch that no controller of this cluster ever ran, so that a majority may begin. "
            "Without it a new controller waits until it has heard from all others.",
        ),
    ] = False,
    add_scram: Annotated[
        list[str],
        typer.Option(
            "--add-scram",
            "-S",
            metavar="MECHANISM=[name=USER,password=...]",
            help="A user that a new cluster knows from its beginning; the same on every controller.",
        ),
    ] = [],  # noqa: B006
) -> None:
    """Write meta.properties into every log dir, and the voter's marker of a controller."""
    from kraft.config.node_config import Config
    from kraft.storage.bootstrap import parse_user
    from kraft.storage.formatter import format_storage
    from metadata_quorum.foundation.disk import OsDisk

    rng = random.SystemRandom()
    fresh = format_storage(
        OsDisk(), Config.load(config), cluster_id, rng, users=[parse_user(each, rng) for each in add_scram],
        new_cluster=new_cluster, ignore_formatted=ignore_formatted,
    )  # fmt: skip
    for directory in fresh:
        print(f"Formatted {directory} for cluster {cluster_id}.")
    if not fresh:
        print("All directories are formatted already.")


@app.command("random-uuid")
def random_uuid_() -> None:
    """Print a new id, for a cluster or a topic."""
    from metadata_quorum.foundation.uuids import random_uuid, uuid_text

    print(uuid_text(random_uuid(random.SystemRandom())))
