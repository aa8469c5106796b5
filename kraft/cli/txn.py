"""`kraft txn`: list and describe transactions, and abort one by force.

It uses our own client: librdkafka has no calls for most of this.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli import completion
from kraft.cli.bootstrap import Address
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap
from kraft.cli.errors import CliError
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
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

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
def abort(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Abort what a transactional id has open, and fence its producer."""
    at_coordinator(bootstrap, name, CoordinatorType.TRANSACTION, lambda address: _abort(address, name))
    print(f"Nothing of {name} is open; its producer is fenced.")


def _abort(address: Address, name: str) -> None:
    timeout_ms = _describe(address, name).transaction_timeout_ms  # as the producer set it
    fields = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
    for _ in attempts(f"{name}: the markers could not be written in time"):
        code = ErrorCode(request(address, ApiKey.INIT_PRODUCER_ID, (1, 5), fields).error_code)
        if code is ErrorCode.NONE:
            break
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS:  # else it is being aborted
            raise BrokerError(code, name)


def _describe(address: Address, name: str) -> Message:
    fields = {"transactional_ids": [name]}
    transaction: Message
    (transaction,) = request(address, ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), fields).transaction_states
    if transaction.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CliError(f"{name}: there is no such transactional id")
    raise_for(transaction.error_code, name)
    return transaction
