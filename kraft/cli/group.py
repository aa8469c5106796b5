"""`kraft group`: who is in a consumer group, how far it is, how far behind; move it, delete it.

Columns are named as those of kafka-consumer-groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from kraft.cli import completion, group_offsets
from kraft.cli.bootstrap import Address
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap
from kraft.cli.errors import CliError, UsageError, tell
from kraft.cli.group_view import GroupView, committed, lags, list_groups, offsets_at, require_group
from kraft.cli.tables import prints_table, show
from kraft.cli.wire_client import BrokerAnswers, at_coordinator, metadata, raise_for, request
from kraft.wire.api_keys import ApiKey
from kraft.wire.coordinator_type import CoordinatorType
from kraft.wire.malformed import only
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.offset_timestamps import LATEST_TIMESTAMP

app = typer.Typer(no_args_is_help=True)
group_offsets.add_to(app)


@app.command("list")
@prints_table
def list_(
    state: Annotated[list[str], typer.Option(help="Only those in this state, as Stable.")] = [],  # noqa: B006
    kind: Annotated[
        list[str], typer.Option("--type", help="Only those of this protocol: classic, consumer.")
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List every group with its protocol and its state."""
    states, kinds = {each.lower() for each in state}, {each.lower() for each in kind}
    groups, answers = list_groups(bootstrap)
    rows = [
        each
        for each in groups
        if (not kinds or each[1].lower() in kinds) and (not states or each[2].lower() in states)
    ]
    show(("GROUP", "TYPE", "STATE"), rows)
    answers.require_all()


# ---- describe ----------------------------------------------------------------------------------------


@app.command()
@prints_table
def describe(
    group_ids: Annotated[
        list[str],
        typer.Argument(
            autocompletion=completion.groups, metavar="[GROUP]...", help="All, where none is named."
        ),
    ] = [],  # noqa: B006
    members: Annotated[bool, typer.Option("--members", help="Who is in it, and reads what.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, coordinator and assignor.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show how far groups are in each partition: committed offset, end of the log, lag, and who reads it.

    The lag is in records that a reader of committed records still gets: markers of transactions, aborted
    records and what compaction has removed have offsets, and do not count.
    """
    if members and state:
        raise UsageError("--members and --state are two views: ask for one")
    answers = BrokerAnswers({}, [])
    if not group_ids:
        listed, answers = list_groups(bootstrap)
        group_ids = [group_id for group_id, *_ in listed]
    groups = [require_group(bootstrap, group_id) for group_id in group_ids]
    if state:
        _show_states(bootstrap, groups)
    elif members:
        _show_members(groups)
    else:
        for group in groups:
            _show_offsets(bootstrap, group)
    answers.require_all()


def _show_offsets(bootstrap: str, group: GroupView) -> None:
    offsets = committed(group.coordinator, group.group_id)
    owners = {place: member for member in group.members for place in member.partitions}
    places = sorted({*offsets, *owners})
    ends = offsets_at(bootstrap, places, LATEST_TIMESTAMP)
    if not group.members:
        tell(f"Group {group.group_id} has no active members.")
    left = lags(bootstrap, offsets, ends)
    rows, about = [], []
    for place in places:
        offset, end, owner = offsets.get(place), ends.get(place), owners.get(place)
        lag, is_exact = left.get(place, (None, True))
        about += [] if is_exact else [str(place)]
        who = (owner.member_id, owner.host, owner.client_id) if owner else (None, None, None)
        rows.append((group.group_id, place.topic, place.partition, offset, end, lag, *who))
    show(
        (
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
            "CONSUMER-ID", "HOST", "CLIENT-ID",
        ),
        rows,
    )  # fmt: skip
    if about:
        tell(f"At most so many records, for not all are counted: {', '.join(about)}")


def _show_members(groups: Sequence[GroupView]) -> None:
    rows = [
        (
            group.group_id, each.member_id, each.instance_id, each.host, each.client_id,
            len(each.partitions), _assignment(each.partitions),
        )
        for group in groups
        for each in group.members
    ]  # fmt: skip
    show(
        ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"), rows
    )


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    """`orders(0,1) payments(2)`."""
    by_topic: dict[str, list[str]] = {}
    for place in partitions:
        by_topic.setdefault(place.topic, []).append(str(place.partition))
    return " ".join(f"{topic}({','.join(numbers)})" for topic, numbers in by_topic.items()) or "-"


def _show_states(bootstrap: str, groups: Sequence[GroupView]) -> None:
    ids = {(broker.host, broker.port): broker.node_id for broker in metadata(bootstrap, []).brokers}
    rows = [
        (
            group.group_id, f"{group.coordinator[0]}:{group.coordinator[1]} ({ids.get(group.coordinator)})",
            group.kind, group.assignor or None, group.state, len(group.members),
        )
        for group in groups
    ]  # fmt: skip
    show(("GROUP", "COORDINATOR (ID)", "TYPE", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"), rows)


# ---- delete ------------------------------------------------------------------------------------------


@app.command()
def delete(
    group_ids: Annotated[list[str], typer.Argument(metavar="GROUP...", autocompletion=completion.groups)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups that nobody is in, with all that they have committed."""
    for group_id in group_ids:
        at_coordinator(bootstrap, group_id, CoordinatorType.GROUP, partial(_delete, group_id))
        print(f"Deleted group {group_id}.")


def _delete(group_id: str, address: Address) -> None:
    answer = only(request(address, ApiKey.DELETE_GROUPS, (0, 2), {"groups_names": [group_id]}).results)
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise CliError(f"{group_id}: there is no such group; `kraft group list` shows those that are")
    if answer.error_code == ErrorCode.NON_EMPTY_GROUP:
        raise CliError(f"{group_id}: consumers are in the group; they must be stopped first")
    raise_for(answer.error_code, group_id)
