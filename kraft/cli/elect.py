"""`kraft elect-leaders`: preferred and unclean elections."""

from __future__ import annotations

from typing import Annotated

import typer

from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, connect_admin, wait
from kraft.cli.errors import UsageError
from kraft.cli.numbers import MAX_INT32
from kraft.cli.tables import prints_table, show
from kraft.cli.wire_client import require_topic


@prints_table
def elect_leaders(
    topic: Annotated[
        str | None, typer.Option(help="All partitions of all topics, where none is named.")
    ] = None,
    partition: Annotated[
        list[int], typer.Option(min=0, max=MAX_INT32, help="Only these partitions of the topic.")
    ] = [],  # noqa: B006
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Let a replica lead that may lack acknowledged records.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Give partitions back to their preferred replica (or, --unclean, to any that lives)."""
    from confluent_kafka import ElectionType, TopicPartition

    if partition and topic is None:
        raise UsageError("--partition needs --topic")
    admin = connect_admin(bootstrap)
    partitions = None
    if topic is not None:
        count = require_topic(bootstrap, topic)
        partitions = [TopicPartition(topic, p) for p in partition or range(count)]
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    outcome = wait(admin.elect_leaders(kind, partitions), "elections")
    rows = []
    failed = False
    for target, error in sorted(outcome.items(), key=lambda item: (item[0].topic, item[0].partition)):
        name = error.name() if error is not None else "elected"
        failed |= name not in ("elected", "ELECTION_NOT_NEEDED", "NO_ERROR")
        rows.append((target.topic, target.partition, "elected" if name == "NO_ERROR" else name))
    show(("topic", "partition", "result"), rows)
    raise typer.Exit(1 if failed else 0)


def add_to(cli: typer.Typer) -> None:
    """Hang the command into the tree."""
    cli.command("elect-leaders")(elect_leaders)
