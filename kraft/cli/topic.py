"""`kraft topic`: create, list, describe, alter and delete topics, and records of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kraft.cli import completion
from kraft.cli.confluent_client import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ReadingBootstrap,
    connect_admin,
    key_values,
    require_partitions,
    wait,
)
from kraft.cli.errors import CliError, UsageError
from kraft.cli.numbers import MAX_INT32, MAX_INT64, MAX_PARTITIONS, MAX_REPLICAS
from kraft.cli.resource_configs import change, overrides_of
from kraft.cli.tables import prints_table, show, show_names
from kraft.cli.wire_client import find_topic, require_topic, topics
from metadata_quorum.foundation.uuids import uuid_text

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
Configs = Annotated[
    list[str], typer.Option("--config", metavar="KEY=VALUE", help="A configuration of the topic.")
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option(min=-1, max=MAX_PARTITIONS, help="-1: the broker's num.partitions.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(min=-1, max=MAX_REPLICAS, help="-1: the broker's default.replication.factor.")
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

    options: dict[str, Any] = {"config": key_values(config, "a configuration")}
    if assignment:
        options["replica_assignment"] = replicas = _assignment(assignment)
        options["num_partitions"] = len(replicas)
    else:
        options |= {"num_partitions": partitions, "replication_factor": replication_factor}
    admin = connect_admin(bootstrap)
    if if_not_exists and find_topic(bootstrap, name) is not None:
        print(f"Topic {name} exists.")
        return
    wait(admin.create_topics([NewTopic(name, **options)])[name], name)
    print(f"Created topic {name}.")


def _assignment(text: str) -> list[list[int]]:
    try:
        assignment = [[int(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError:
        raise UsageError(f"{text}: an assignment is written as 1:2,2:3") from None
    if not all(0 <= broker <= MAX_INT32 for replicas in assignment for broker in replicas):
        raise UsageError(f"{text}: a broker's id is a number from 0 to {MAX_INT32}")
    if len(assignment) > MAX_PARTITIONS or max(map(len, assignment)) > MAX_REPLICAS:
        raise UsageError(f"at most {MAX_PARTITIONS} partitions, of {MAX_REPLICAS} replicas each")
    return assignment


@app.command("list")
@prints_table
def list_(
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Not Kafka's own topics.")
    ] = False,
    bootstrap: ReadingBootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the names of all topics."""
    show_names(
        "topic",
        [
            str(topic.name)
            for topic in topics(bootstrap, None)
            if not (exclude_internal and topic.is_internal)
        ],
    )


@app.command()
@prints_table
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
    bootstrap: ReadingBootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show partitions with leader, replicas and ISR. With --under-replicated nothing, where all is well."""
    for topic in topics(bootstrap, names or None):
        partitions = sorted(topic.partitions, key=lambda each: int(each.partition_index))
        copies = len(partitions[0].replica_nodes) if partitions else 0
        configs = ",".join(f"{k}={v}" for k, v in overrides_of(bootstrap, "topic", topic.name).items())
        about = {
            "Topic": topic.name,
            "TopicId": uuid_text(topic.topic_id),
            "PartitionCount": len(partitions),
            "ReplicationFactor": copies,
            "Configs": configs,
        }
        rows = [
            (
                each.partition_index,
                each.leader_id if each.leader_id >= 0 else "none",
                ",".join(map(str, each.replica_nodes)),
                ",".join(map(str, each.isr_nodes)),
            )
            for each in partitions
            if not under_replicated or len(each.isr_nodes) < len(each.replica_nodes)
        ]
        if under_replicated and not rows:
            continue
        show(("partition", "leader", "replicas", "isr"), rows, about=about, one_line=True)


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=MAX_PARTITIONS, help="The new number; it can only grow.")
    ] = None,
    config: Configs = [],  # noqa: B006
    delete_config: Annotated[list[str], typer.Option(metavar="KEY", help="Back to the broker's value.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions, change configurations."""
    from confluent_kafka.admin import NewPartitions

    if partitions is None and not config and not delete_config:
        raise UsageError("nothing to alter: give --partitions, --config or --delete-config")
    admin = connect_admin(bootstrap)
    require_topic(bootstrap, name)
    if partitions is not None:
        wait(admin.create_partitions([NewPartitions(name, partitions)])[name], name)
    if config or delete_config:
        change(bootstrap, "topic", name, key_values(config, "a configuration"), delete_config)
    print(f"Altered topic {name}.")


@app.command("delete-records")
@prints_table
def delete_records(
    name: Name,
    before_offset: Annotated[
        int,
        typer.Option(
            "--before-offset", min=-1, max=MAX_INT64, help="The first that stays; -1: all that there are now."
        ),
    ],
    partition: Annotated[
        list[int],
        typer.Option("--partition", "-p", min=0, max=MAX_INT32, help="Only these; all where none is named."),
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete the records of a topic up to an offset, and show where each partition begins then."""
    from confluent_kafka import TopicPartition

    admin = connect_admin(bootstrap)
    count = require_topic(bootstrap, name)
    require_partitions(name, count, partition)
    wanted = [TopicPartition(name, each, before_offset) for each in partition or range(count)]
    rows, failed = [], ""
    for place, future in admin.delete_records(wanted).items():
        try:
            rows.append((place.partition, wait(future, f"{name}-{place.partition}").low_watermark))
        except CliError as error:
            failed = failed or str(error)
    show(("partition", "log start offset"), sorted(rows))
    if failed:
        raise CliError(failed)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=completion.topics)],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A missing topic is no error.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics and their data."""
    admin = connect_admin(bootstrap)
    for name in names:
        if find_topic(bootstrap, name) is None:
            if if_exists:
                continue
            raise CliError(f"{name}: there is no such topic")
        wait(admin.delete_topics([name])[name], name)
        print(f"Deleted topic {name}.")
