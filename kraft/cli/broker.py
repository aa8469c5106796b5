"""`kraft broker`: the brokers that there are, what they speak, what is on their disks.

The cluster's brokers, wherever they run; `kraft node` is about the processes of `kraft up`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kraft.cli import completion
from kraft.cli.bootstrap import any_broker
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, ReadingBootstrap
from kraft.cli.errors import CliError
from kraft.cli.numbers import MAX_INT32
from kraft.cli.tables import prints_table, show
from kraft.cli.wire_client import api_versions, broker_address, of_each_broker, raise_for, request
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode

app = typer.Typer(no_args_is_help=True)

BrokerId = Annotated[int, typer.Argument(metavar="ID", min=0, max=MAX_INT32)]


@app.command("list")
@prints_table
def list_(bootstrap: ReadingBootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the brokers that are registered: address, rack, and whether the controller hears them."""
    fields = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": True,
    }
    answer = request(any_broker(bootstrap), ApiKey.DESCRIBE_CLUSTER, (2, 2), fields)
    raise_for(answer.error_code, answer.error_message or "")
    rows = [
        (
            each.broker_id,
            f"{each.host}:{each.port}" if each.host else None,
            each.rack,
            "fenced" if each.is_fenced else "active",
        )
        for each in sorted(answer.brokers, key=lambda each: int(each.broker_id))
    ]
    show(("broker", "address", "rack", "state"), rows, about={"ClusterId": answer.cluster_id})


@app.command()
def unregister(broker_id: BrokerId, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Forget a broker that never comes back. Its replicas should have been moved before."""
    answer = request(any_broker(bootstrap), ApiKey.UNREGISTER_BROKER, (0, 0), {"broker_id": broker_id})
    raise_for(answer.error_code, answer.error_message or str(broker_id))
    print(f"Unregistered broker {broker_id}.")


@app.command("api-versions")
@prints_table
def list_api_versions(
    broker: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The first that answers, where none is named.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show which APIs a broker answers, and in which versions."""
    address = any_broker(bootstrap) if broker is None else broker_address(bootstrap, broker)
    answer = api_versions(address, (0, 3))
    rows = [
        (each.api_key, _name(each.api_key), each.min_version, each.max_version) for each in answer.api_keys
    ]
    show(("key", "api", "from", "to"), sorted(rows))


def _name(key: int) -> str | None:
    """The name of an API as Kafka writes it; None for an API that we do not know."""
    return ApiKey(key).api_name if key in set(ApiKey) else None


@app.command("log-dirs")
@prints_table
def log_dirs(
    topics: Annotated[
        list[str],
        typer.Option("--topic", help="Only these; all by default.", autocompletion=completion.topics),
    ] = [],  # noqa: B006
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Each replica, not only each directory.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the log directories of every broker: state, size, room; with --replicas what is in them."""
    answers = of_each_broker(bootstrap, ApiKey.DESCRIBE_LOG_DIRS, (4, 4), {"topics": None})
    dirs = [(broker, each) for broker, answer in sorted(answers.by_id.items()) for each in answer.results]
    if replicas:
        rows: list[tuple[object, ...]] = [
            (broker, each.log_dir, topic.name, part.partition_index, part.partition_size, part.offset_lag,
             "future" if part.is_future_key else "current")
            for broker, each in dirs
            for topic in sorted(each.topics, key=lambda topic: str(topic.name))
            if not topics or topic.name in topics
            for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
        ]  # fmt: skip
        show(("broker", "log dir", "topic", "partition", "bytes", "offset lag", "replica"), rows)
    else:
        rows = []
        for broker, each in dirs:
            chosen = [topic for topic in each.topics if not topics or topic.name in topics]
            sizes = [int(part.partition_size) for topic in chosen for part in topic.partitions]
            state = "online" if each.error_code == ErrorCode.NONE else ErrorCode(each.error_code).name
            room = (each.usable_bytes, each.total_bytes) if each.total_bytes > 0 else (None, None)
            rows.append((broker, each.log_dir, state, len(sizes), sum(sizes), *room))
        show(("broker", "log dir", "state", "replicas", "bytes", "usable bytes", "total bytes"), rows)
    answers.require_all()
    if missing := set(topics) - {str(topic.name) for _, each in dirs for topic in each.topics}:
        raise CliError(f"{min(missing)}: no broker has a replica of it")
