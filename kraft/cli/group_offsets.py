"""`kraft group reset-offsets` and `delete-offsets`: what a group has committed, changed by hand.

options -> one Rule (group_reset.py) -> a plan, an offset per partition -> shown, and committed with --execute
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kraft.cli import completion
from kraft.cli import group_reset as reset
from kraft.cli.bootstrap import Address
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap
from kraft.cli.errors import CliError, UsageError
from kraft.cli.group_view import EMPTY, committed, group_of, offsets_at, partitions_of
from kraft.cli.tables import prints_table, show
from kraft.cli.text_file import text_of
from kraft.cli.wire_client import at_coordinator, raise_for, request
from kraft.wire.api_keys import ApiKey
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition, by_topic
from metadata_quorum.foundation.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

GroupId = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=completion.groups)]
Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        metavar="TOPIC[:0,2]",
        help="A topic, or some of its partitions.",
        autocompletion=completion.topics,
    ),
]


@prints_table
def reset_offsets(
    group_id: GroupId,
    topic: Topics = [],  # noqa: B006
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All that the group has committed.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="What is committed, within the log.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0)] = None,
    shift_by: Annotated[int | None, typer.Option(help="Records forward; back with a minus sign.")] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="First record since 2026-11-21T09:00:00.000 (UTC).")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="PnDTnHnMnS", help="First record of the last PT1H30M, say.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Lines of topic,partition,offset, as --export prints.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; otherwise it is only shown.")
    ] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the plan as CSV.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move a group that nobody is in to other offsets. Shows what it would do, unless --execute is given."""
    rules = [
        reset.ToEarliest() if to_earliest else None,
        reset.ToLatest() if to_latest else None,
        reset.ToCurrent() if to_current else None,
        None if to_offset is None else reset.ToOffset(to_offset),
        None if shift_by is None else reset.ShiftBy(shift_by),
        None if to_datetime is None else reset.ToTime(reset.parse_time(to_datetime)),
        None if by_duration is None else reset.ToTime(reset.time_ago(by_duration, _now_ms())),
        None if from_file is None else _from_file(from_file, group_id),
    ]
    rule = _the_one(rules)
    offsets = at_coordinator(
        bootstrap, group_id, CoordinatorType.GROUP, lambda address: committed(address, group_id)
    )
    partitions = _selected(bootstrap, rule, topic, offsets if all_topics else None)
    _refuse_active(bootstrap, group_id)
    plan = _plan(bootstrap, rule, partitions, offsets)
    if execute:
        at_coordinator(
            bootstrap, group_id, CoordinatorType.GROUP, lambda address: _commit(address, group_id, plan)
        )
    if export:
        csv.writer(sys.stdout, lineterminator="\n").writerows((*place, new) for place, new in plan.items())
    else:
        rows = [(group_id, *place, offsets.get(place), new) for place, new in plan.items()]
        show(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows)
    if not execute:
        print("Nothing was changed; --execute does it.", file=sys.stderr)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _from_file(path: Path, group_id: str) -> reset.FromFile:
    return reset.FromFile(reset.read_csv(text_of(path).splitlines(), group_id, str(path)))


def _the_one(rules: Sequence[reset.Rule | None]) -> reset.Rule:
    chosen = [rule for rule in rules if rule is not None]
    if len(chosen) != 1:
        raise UsageError(
            "where to? Give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
            "--to-datetime, --by-duration, --from-file"
        )
    return chosen[0]


def _selected(
    bootstrap: str,
    rule: reset.Rule,
    topics: Sequence[str],
    offsets: Mapping[TopicPartition, int] | None,
) -> list[TopicPartition]:
    if isinstance(rule, reset.FromFile):
        return partitions_of(bootstrap, by_topic(rule.offsets))
    if topics:
        return partitions_of(bootstrap, reset.parse_selection(topics))
    if offsets is not None:
        return sorted(offsets)
    raise UsageError("which topics? Give --topic TOPIC[:0,2] or --all-topics")


def _refuse_active(bootstrap: str, group_id: str) -> None:
    group = group_of(bootstrap, group_id)
    if group is not None and group.state != EMPTY:
        raise CliError(f"{group_id}: the group is {group.state}; its consumers must be stopped first")


def _plan(
    bootstrap: str,
    rule: reset.Rule,
    partitions: Sequence[TopicPartition],
    offsets: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    earliest = offsets_at(bootstrap, partitions, EARLIEST_TIMESTAMP)
    latest = offsets_at(bootstrap, partitions, LATEST_TIMESTAMP)
    at_time: Mapping[TopicPartition, int] = {}
    if isinstance(rule, reset.ToTime):
        at_time = offsets_at(bootstrap, partitions, rule.timestamp_ms)
    plan = {}
    for place in partitions:
        if place not in earliest or place not in latest:
            raise CliError(f"{place.topic}-{place.partition}: it has no leader that could be asked")
        known = reset.PartitionOffsets(
            place, earliest[place], latest[place], offsets.get(place), at_time.get(place)
        )
        plan[place] = reset.new_offset(rule, known)
    return plan


def _commit(address: Address, group_id: str, plan: Mapping[TopicPartition, int]) -> None:
    fields = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": _by_topic(
            plan,
            lambda place: {
                "partition_index": place.partition, "committed_offset": plan[place],
                "committed_leader_epoch": -1, "committed_metadata": "",
            },
        ),
    }  # fmt: skip
    for topic in request(address, ApiKey.OFFSET_COMMIT, (7, 8), fields).topics:
        for each in topic.partitions:
            raise_for(each.error_code, f"{group_id}: {topic.name}-{each.partition_index}")


# ---- delete-offsets ----------------------------------------------------------------------------------


def delete_offsets(group_id: GroupId, topic: Topics, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Forget what a group has committed for topics that none of its members reads."""
    partitions = partitions_of(bootstrap, reset.parse_selection(topic))
    at_coordinator(
        bootstrap, group_id, CoordinatorType.GROUP, lambda address: _delete(address, group_id, partitions)
    )
    for place in partitions:
        print(f"Deleted the offset of {group_id} in {place.topic}-{place.partition}.")


def _delete(address: Address, group_id: str, partitions: Sequence[TopicPartition]) -> None:
    fields = {
        "group_id": group_id,
        "topics": _by_topic(partitions, lambda place: {"partition_index": place.partition}),
    }
    answer = request(address, ApiKey.OFFSET_DELETE, (0, 0), fields)
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise CliError(f"{group_id}: there is no such group; `kraft group list` shows those that are")
    raise_for(answer.error_code, group_id)
    for each_topic in answer.topics:
        for each in each_topic.partitions:
            if each.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                raise CliError(
                    f"{group_id}: the group reads {each_topic.name}; its consumers must be stopped first"
                )
            raise_for(each.error_code, f"{group_id}: {each_topic.name}-{each.partition_index}")


def _by_topic(
    partitions: Iterable[TopicPartition], fields: Callable[[TopicPartition], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Partitions with their fields, by topic, as requests list them."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for place in partitions:
        topics.setdefault(place.topic, []).append(fields(place))
    return [{"name": name, "partitions": each} for name, each in topics.items()]


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the tree."""
    app.command("reset-offsets")(reset_offsets)
    app.command("delete-offsets")(delete_offsets)
