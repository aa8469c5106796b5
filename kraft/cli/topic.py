"""`kraft topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli import completion
from kraft.cli.confluent_client import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    connect_admin,
    key_values,
    require_topic,
    wait,
)
from kraft.cli.errors import CliError
from kraft.cli.resource_configs import change, overrides_of
from kraft.cli.tables import show

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
Configs = Annotated[
    list[str], typer.Option("--config", metavar="KEY=VALUE", help="A configuration of the topic.")
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option(help="-1: the broker's num.partitions.")] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="-1: the broker's default.replication.factor.")
    ] = -1,
    assignment: Annotated[
        str,
        typer.Option(
            "--replica-assignment", metavar="1:2,2:3", help="Brokers of each partition, in place of both."
        ),
    ] = "",
    config: Configs = [],  # noqa: B006
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is no error.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a topic."""
    from confluent_kafka.admin import NewTopic

    admin, metadata = connect_admin(bootstrap)
    if if_not_exists and name in metadata.topics:
        return
    options: dict[str, Any] = {"config": key_values(config, "a configuration")}
    if assignment:
        options["replica_assignment"] = replicas = _assignment(assignment)
        options["num_partitions"] = len(replicas)
    else:
        options |= {"num_partitions": partitions, "replication_factor": replication_factor}
    wait(admin.create_topics([NewTopic(name, **options)])[name], name)
    print(f"Created topic {name}.")


def _assignment(text: str) -> list[list[int]]:
    try:
        return [[int(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError:
        raise CliError(f"{text}: an assignment is written as 1:2,2:3") from None


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics too.")] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the names of all topics."""
    _, metadata = connect_admin(bootstrap)
    for name in sorted(metadata.topics):
        if internal or not name.startswith("__"):
            print(name)


@app.command()
def describe(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[TOPIC]...", help="All, where none is named.", autocompletion=completion.topics
        ),
    ] = [],  # noqa: B006
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with replicas out of sync.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show partitions with leader, replicas and ISR."""
    admin, metadata = connect_admin(bootstrap)
    for name in names:
        require_topic(metadata, name)
    described = names or sorted(metadata.topics)
    for description in _descriptions(admin, described):
        partitions = description.partitions
        copies = len(partitions[0].replicas) if partitions else 0
        configs = ",".join(f"{k}={v}" for k, v in overrides_of(admin, "topic", description.name).items())
        print(
            f"Topic: {description.name}  TopicId: {_topic_id(description)}  "
            f"PartitionCount: {len(partitions)}  ReplicationFactor: {copies}  Configs: {configs}".rstrip()
        )
        rows = [
            (
                p.id,
                p.leader.id if p.leader is not None and p.leader.id >= 0 else "none",
                _ids(p.replicas),
                _ids(p.isr),
            )
            for p in partitions
            if not under_replicated or len(p.isr) < len(p.replicas)
        ]
        show(("partition", "leader", "replicas", "isr"), rows)


def _descriptions(admin: AdminClient, names: list[str]) -> list[Any]:
    from confluent_kafka import TopicCollection

    if not names:
        return []
    futures = admin.describe_topics(TopicCollection(names))
    return [wait(futures[name], name) for name in names]


def _topic_id(description: Any) -> str:
    """As Kafka writes it, URL-safe; librdkafka prints plain base64."""
    return str(description.topic_id).translate(str.maketrans("+/", "-_"))


def _ids(nodes: Sequence[Any]) -> str:
    return ",".join(str(node.id) for node in nodes)


@app.command()
def alter(
    name: Name,
    partitions: Annotated[int | None, typer.Option(help="The new number; it can only grow.")] = None,
    config: Configs = [],  # noqa: B006
    delete_config: Annotated[list[str], typer.Option(metavar="KEY", help="Back to the broker's value.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions, change configurations."""
    from confluent_kafka.admin import NewPartitions

    if partitions is None and not config and not delete_config:
        raise CliError("nothing to alter: give --partitions, --config or --delete-config")
    admin, metadata = connect_admin(bootstrap)
    require_topic(metadata, name)
    if partitions is not None:
        wait(admin.create_partitions([NewPartitions(name, partitions)])[name], name)
    if config or delete_config:
        change(admin, "topic", name, key_values(config, "a configuration"), delete_config)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=completion.topics)],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A missing topic is no error.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics and their data."""
    admin, metadata = connect_admin(bootstrap)
    for name in names:
        if name in metadata.topics:
            wait(admin.delete_topics([name])[name], name)
            print(f"Deleted topic {name}.")
        elif not if_exists:
            require_topic(metadata, name)
