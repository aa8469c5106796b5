"""`kraft storage`: prepare a node's directories, as kafka-storage does; leave a quorum's to Apache Kafka, and
take Apache Kafka's over."""

from __future__ import annotations

import random
from typing import Annotated

import typer

from kraft.cli.tables import prints_table, show

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

    rng, disk, node = random.SystemRandom(), OsDisk(), Config.load(config)
    if new_cluster:
        from kraft.cli.new_quorum import check_new

        check_new(disk, node, cluster_id)
    fresh = format_storage(
        disk, node, cluster_id, rng, users=[parse_user(each, rng) for each in add_scram],
        new_cluster=new_cluster, ignore_formatted=ignore_formatted,
    )  # fmt: skip
    for directory in fresh:
        print(f"Formatted {directory} for cluster {cluster_id}.")
    if not fresh:
        print("All directories are formatted already.")


Configs = Annotated[
    list[str],
    typer.Option(
        "--config",
        "-c",
        metavar="server.properties",
        help="Of every controller of the quorum, each by a -c of its own.",
    ),
]


@app.command("export")
def export(config: Configs) -> None:
    """Leave the directories of our controllers, which have been stopped, to Apache Kafka's."""
    from kraft.config.node_config import Config
    from kraft.storage.migration import export_quorum
    from metadata_quorum.foundation.disk import OsDisk

    configs = [Config.load(path) for path in config]
    done = export_quorum(OsDisk(), configs)
    print(
        f"Cluster {done.cluster_id} is Apache Kafka's from offset {done.end_offset}, epoch {done.epoch} on."
    )
    print("Start Apache Kafka's controllers with the same properties, without formatting anything.")
    ignored = sorted({key for each in configs for key in each.given if key.startswith("kraft.")})
    if ignored:
        print(f"It does not know {', '.join(ignored)}, and ignores it.")


@app.command("import")
def import_(config: Configs) -> None:
    """Take the directories of Apache Kafka's controllers over, which have been stopped."""
    from kraft.config.node_config import Config
    from kraft.storage.migration import import_quorum
    from metadata_quorum.foundation.disk import OsDisk

    configs = [Config.load(path) for path in config]
    done = import_quorum(OsDisk(), configs, random.SystemRandom())
    print(f"Cluster {done.cluster_id} is kraft's from offset {done.end_offset}, epoch {done.epoch} on.")
    print("Start the controllers (kraft start) with the same properties.")


@app.command()
@prints_table
def info(
    config: Annotated[str, typer.Option("--config", "-c", metavar="server.properties")],
) -> None:
    """Show what a node's directories hold, and whether it could start on them."""
    from kraft.config.node_config import Config
    from kraft.storage.formatter import inspect_storage
    from metadata_quorum.foundation.disk import OsDisk

    found = inspect_storage(OsDisk(), Config.load(config))
    show(
        ("directory", "cluster id", "node id", "directory id", "problem"),
        [(each.directory, each.cluster_id, each.node_id, each.directory_id, each.problem) for each in found],
    )
    raise typer.Exit(1 if any(each.problem for each in found) else 0)


@app.command("random-uuid")
def random_uuid_() -> None:
    """Print a new id, for a cluster or a topic."""
    from metadata_quorum.foundation.uuids import random_uuid, uuid_text

    print(uuid_text(random_uuid(random.SystemRandom())))
