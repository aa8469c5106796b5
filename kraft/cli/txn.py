"""`kraft txn`: which transactions there are, what one of them is about, and how to end one by force.

Our own client asks: librdkafka has no words for most of this.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from kraft.cli.clients import DEFAULT_BOOTSTRAP, PATIENCE_S, Bootstrap, first_address
from kraft.cli.tables import show
from kraft.cli.trouble import Trouble
from kraft.cluster_state import ask
from kraft.wire.bridge import Message
from metadata_quorum.errors import BrokerError, ErrorCode

METADATA: Final = 3
FIND_COORDINATOR: Final = 10
INIT_PRODUCER_ID: Final = 22
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66

_TRANSACTION: Final = 1
"""The type of key that a transactional id is, for FindCoordinator."""
_PAUSE_S: Final = 0.1

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_transactions(
    state: Annotated[list[str], typer.Option(help="Only those in this state, as Ongoing.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List every transactional id with its coordinator, its producer id and its state."""
    wanted = {"state_filters": state, "producer_id_filters": []}
    rows = []
    for broker in _request(first_address(bootstrap), METADATA, (9, 12), {"topics": []}).brokers:
        answer = _request((broker.host, broker.port), LIST_TRANSACTIONS, (0, 2), wanted)
        _raise_for(answer.error_code, f"broker {broker.node_id}")
        if answer.unknown_state_filters:
            raise Trouble(f"{answer.unknown_state_filters[0]}: there is no such state")
        rows += [
            (each.transactional_id, broker.node_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        ]
    show(("transactional id", "coordinator", "producer id", "state"), sorted(rows))


@app.command()
def describe(name: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show what a transactional id is doing: producer, state, age, partitions."""
    found = _describe(_coordinator(bootstrap, name), name)
    open_s = "-"
    if found.transaction_state == "Ongoing":
        open_s = f"{max(0.0, time.time() - found.transaction_start_time_ms / 1000):.1f} s"
    partitions = [f"{topic.topic}-{number}" for topic in found.topics for number in topic.partitions]
    print(f"State: {found.transaction_state}")
    print(f"ProducerId: {found.producer_id}")
    print(f"ProducerEpoch: {found.producer_epoch}")
    print(f"Timeout: {found.transaction_timeout_ms} ms")
    print(f"Open: {open_s}")
    print(f"Partitions: {', '.join(partitions) or '-'}")


@app.command()
def abort(name: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Abort what a transactional id has open, and fence its producer."""
    address = _coordinator(bootstrap, name)
    timeout_ms = _describe(address, name).transaction_timeout_ms  # as the producer asked for it
    wanted = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
    for _ in _attempts(f"{name}: the markers could not be written in time"):
        code = ErrorCode(_request(address, INIT_PRODUCER_ID, (1, 5), wanted).error_code)
        if code is ErrorCode.NONE:
            break
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS:  # else it is being aborted
            raise BrokerError(code, name)
    print(f"Nothing of {name} is open; its producer is fenced.")


def _describe(address: tuple[str, int], name: str) -> Message:
    wanted = {"transactional_ids": [name]}
    found: Message
    (found,) = _request(address, DESCRIBE_TRANSACTIONS, (0, 0), wanted).transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise Trouble(f"{name}: there is no such transactional id")
    _raise_for(found.error_code, name)
    return found


def _coordinator(bootstrap: str, name: str) -> tuple[str, int]:
    wanted = {"key": name, "key_type": _TRANSACTION}
    for _ in _attempts(f"{name}: its coordinator was not found in time"):
        found = _request(first_address(bootstrap), FIND_COORDINATOR, (1, 3), wanted)
        if found.error_code == ErrorCode.NONE:
            break
        if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            raise BrokerError(ErrorCode(found.error_code), name)
    return found.host, found.port


def _attempts(in_vain: str) -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(_PAUSE_S)
    raise Trouble(in_vain)


def _request(
    address: tuple[str, int], api_key: int, versions: tuple[int, int], fields: Mapping[str, Any]
) -> Message:
    try:
        return ask(*address, api_key, versions, fields)
    except OSError:
        raise Trouble(f"{address[0]}:{address[1]}: no broker answers") from None


def _raise_for(code: int, context: str) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(code), context)
