"""`kraft reassign`: move partitions to other brokers: plan it, run it, look at it, call it off."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from kraft.cli import reassign_requests as requests
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap
from kraft.cli.errors import CliError, UsageError
from kraft.cli.reassignment_plan import PlacedPartition, decode, encode, propose
from kraft.cli.tables import prints_table, show
from kraft.cli.text_file import text_of

app = typer.Typer(no_args_is_help=True)

POLL_S: Final = 0.2

PlanFile = Annotated[Path, typer.Argument(metavar="FILE", help="As plan writes it; - for standard input.")]


@app.command()
def plan(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="1,2,3", help="Brokers to use; all that are up, where none is named."),
    ] = "",
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Replicas of each partition; as many as now by default.")
    ] = None,
    save_current: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write down where all lies now: the way back.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Propose where the partitions of topics could lie: balanced, spread over racks, with few moves.

    Prints JSON in the format of kafka-reassign-partitions."""
    up = requests.racks(bootstrap)
    chosen = {broker: up.get(broker) for broker in _brokers(to)} if to else up
    missing = sorted(chosen.keys() - up.keys())
    if missing:
        raise CliError(f"{missing[0]}: no such broker is up; those that are up are {_ids(sorted(up))}")
    current = requests.placed(bootstrap, topics)
    try:
        proposal = propose(current, chosen, replication_factor)
    except ValueError as error:
        raise CliError(str(error)) from None
    if save_current is not None:
        save_current.write_text(encode(current) + "\n")
    print(encode(proposal))


def _brokers(text: str) -> list[int]:
    try:
        return [int(broker) for broker in text.split(",")]
    except ValueError:
        raise UsageError(f"{text}: brokers are written as 1,2,3") from None


@app.command()
def run(
    file: PlanFile,
    throttle: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES/S", help="Let each broker copy no faster.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until all have moved.")] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move partitions to where the file says. Run again, it continues to wait.

    A throttle is taken away at the end; without waiting it stays, until `kraft reassign run` has waited or
    `cancel` has been called."""
    plan = _read(file)
    names = sorted({each.topic for each in plan})
    before = requests.placed(bootstrap, names)
    if throttle is not None:
        requests.throttle(bootstrap, throttle, before, plan)
    requests.choose_log_dirs(bootstrap, plan)
    requests.alter(bootstrap, {(each.topic, each.partition): each.replicas for each in plan})
    if not wait:
        print(f"{_count(len(plan))} on the way.")
        return
    _wait(bootstrap, {(each.topic, each.partition) for each in plan})
    requests.lift_throttle(bootstrap, names)


def _read(file: Path) -> list[PlacedPartition]:
    try:
        return decode(text_of(file))
    except ValueError as error:
        raise CliError(f"{file}: {error}") from None


def _wait(bootstrap: str, moving: set[requests.Place]) -> None:
    reported = -1
    while True:
        left = {(each.topic, each.partition) for each in requests.ongoing(bootstrap)} & moving
        done = len(moving) - len(left)
        if done != reported:
            print(f"{done} of {_count(len(moving))} moved", flush=True)
            reported = done
        if not left:
            return
        time.sleep(POLL_S)


@app.command()
@prints_table
def status(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show which partitions are under way, and whom they wait for."""
    moving = requests.ongoing(bootstrap)
    in_sync = {
        (topic.name, each.partition_index): set(each.isr_nodes)
        for topic in (requests.topics(bootstrap, sorted({m.topic for m in moving})) if moving else ())
        for each in topic.partitions
    }
    rows = [
        (
            each.topic,
            each.partition,
            _ids(r for r in each.replicas if r not in each.removing),
            _ids(each.adding),
            _ids(each.removing),
            _ids(
                r
                for r in each.replicas
                if r not in each.removing and r not in in_sync.get((each.topic, each.partition), ())
            ),
        )
        for each in moving
    ]
    show(("topic", "partition", "target", "adding", "removing", "not yet in sync"), rows)


@app.command()
def cancel(
    topics: Annotated[list[str], typer.Argument(metavar="[TOPIC]...", help="All, where none is named.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Call reassignments off: partitions stay with the replicas that they had."""
    if topics:
        requests.topics(bootstrap, topics)
    moving = [each for each in requests.ongoing(bootstrap) if not topics or each.topic in topics]
    if moving:
        requests.alter(bootstrap, {(each.topic, each.partition): None for each in moving})
        requests.lift_throttle(bootstrap, {each.topic for each in moving})
    print(f"{_count(len(moving))} called off.")


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' * (partitions != 1)}"


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "-"
