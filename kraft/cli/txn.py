"""`kraft txn`: list and describe transactions, and abort one by force.

    abort ID                                        its coordinator aborts it, and fences its producer
    abort --topic T --partition P --start-offset O  one that no coordinator knows: the partition's leader is
                                                    sent its marker (WriteTxnMarkers)

It uses our own client: librdkafka has no calls for most of this.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli import completion
from kraft.cli.bootstrap import Address
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap
from kraft.cli.errors import CliError, UsageError
from kraft.cli.group_view import by_leader, partitions_of
from kraft.cli.open_transactions import active_producers, unfinished_of
from kraft.cli.tables import prints_table, show, show_facts
from kraft.cli.wire_client import (
    at_coordinator,
    attempts,
    of_each_broker,
    raise_for,
    request,
)
from kraft.wire.api_keys import ApiKey
from kraft.wire.coordinator_type import CoordinatorType
from kraft.wire.malformed import only
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition

if TYPE_CHECKING:
    from kraft.wire.bridge import Message


app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.transactional_ids)]


@app.command("list")
@prints_table
def list_transactions(
    state: Annotated[list[str], typer.Option(help="Only those in this state, as Ongoing.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List every transactional id with its coordinator, its producer id and its state."""
    fields = {"state_filters": state, "producer_id_filters": []}
    rows = []
    answers = of_each_broker(bootstrap, ApiKey.LIST_TRANSACTIONS, (0, 2), fields)
    for broker_id, answer in answers.by_id.items():
        if answer.unknown_state_filters:
            raise CliError(f"{answer.unknown_state_filters[0]}: there is no such state")
        rows += [
            (each.transactional_id, broker_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        ]
    show(("transactional id", "coordinator", "producer id", "state"), sorted(rows))
    answers.require_all()


@app.command()
@prints_table
def describe(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show what a transactional id is doing: producer, state, age, partitions."""
    transaction = at_coordinator(
        bootstrap, name, CoordinatorType.TRANSACTION, lambda address: _describe(address, name)
    )
    open_s = None
    if transaction.transaction_state == "Ongoing":
        open_s = f"{max(0.0, time.time() - transaction.transaction_start_time_ms / 1000):.1f} s"
    partitions = [f"{topic.topic}-{number}" for topic in transaction.topics for number in topic.partitions]
    show_facts(
        {
            "State": transaction.transaction_state,
            "ProducerId": transaction.producer_id,
            "ProducerEpoch": transaction.producer_epoch,
            "Timeout": f"{transaction.transaction_timeout_ms} ms",
            "Open": open_s,
            "Partitions": ", ".join(partitions) or None,
        }
    )


@app.command()
def abort(
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", autocompletion=completion.transactional_ids)
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Instead of ID: of one that hangs.", autocompletion=completion.topics)
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Where it is open.")] = None,
    start_offset: Annotated[int | None, typer.Option(min=0, help="Of its first record there.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort what a transactional id has open, and fence its producer; or what hangs on a partition."""
    if name is not None and (topic, partition, start_offset) == (None, None, None):
        at_coordinator(bootstrap, name, CoordinatorType.TRANSACTION, lambda address: _abort(address, name))
        print(f"Nothing of {name} is open; its producer is fenced.")
    elif name is None and topic is not None and partition is not None and start_offset is not None:
        producer_id = _abort_hanging(bootstrap, TopicPartition(topic, partition), start_offset)
        print(f"What producer {producer_id} had open on {topic}-{partition} is aborted.")
    else:
        raise UsageError("give ID, or --topic, --partition and --start-offset")


def _abort(address: Address, name: str) -> None:
    timeout_ms = _describe(address, name).transaction_timeout_ms  # as the producer set it
    fields = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
    for _ in attempts(f"{name}: the markers could not be written in time"):
        code = ErrorCode(request(address, ApiKey.INIT_PRODUCER_ID, (1, 5), fields).error_code)
        if code is ErrorCode.NONE:
            break
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS:  # else it is being aborted
            raise BrokerError(code, name)


def _abort_hanging(bootstrap: str, place: TopicPartition, start_offset: int) -> int:
    """Returns its producer id. Raises CliError where none begins there, or a coordinator knows it, which
    would then commit elsewhere what is aborted here."""
    partitions_of(bootstrap, {place.topic: [place.partition]})
    for leader in by_leader(bootstrap, [place]):
        for _, hanging in active_producers(leader, [place]):
            if hanging.current_txn_start_offset == start_offset:
                _require_unknown(bootstrap, hanging.producer_id)
                _write_abort_marker(leader, place, hanging)
                return int(hanging.producer_id)
        raise CliError(f"{place}: no transaction is open there from offset {start_offset}")
    raise CliError(f"{place} has no leader")


def _require_unknown(bootstrap: str, producer_id: int) -> None:
    """Raises CliError."""
    answers = unfinished_of(bootstrap, [producer_id])
    known = [each.transactional_id for a in answers.by_id.values() for each in a.transaction_states]
    if known:
        raise CliError(f"it does not hang, its coordinator knows it: kraft txn abort {known[0]}")
    answers.require_all()


def _write_abort_marker(leader: Address, place: TopicPartition, hanging: Message) -> None:
    marker = {
        "producer_id": hanging.producer_id,
        "producer_epoch": hanging.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": place.topic, "partition_indexes": [place.partition]}],
        "coordinator_epoch": max(hanging.coordinator_epoch, 0),
    }
    written = only(request(leader, ApiKey.WRITE_TXN_MARKERS, (1, 1), {"markers": [marker]}).markers)
    raise_for(only(only(written.topics).partitions).error_code, str(place))


def _describe(address: Address, name: str) -> Message:
    fields = {"transactional_ids": [name]}
    answer = request(address, ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), fields)
    transaction: Message = only(answer.transaction_states)
    if transaction.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CliError(f"{name}: there is no such transactional id")
    raise_for(transaction.error_code, name)
    return transaction
