"""`kraft sim`: seeds of the whole cluster, run, replayed, cut down."""

from __future__ import annotations

import contextlib
import gc
import logging
import shlex
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.errors import CliError, UsageError
from kraft.cli.text_file import text_of

if TYPE_CHECKING:
    from chaos.simulator.faults import SimFault
    from chaos.simulator.profile import Profile
    from chaos.simulator.run import Outcome
    from chaos.simulator.shrink import ShrunkRun
    from chaos.simulator.software import Software

SECONDS = 20.0
STORY_LINES = 60
"""How many lines of the story are printed before the violation."""

app = typer.Typer(
    name="sim",
    help="Simulate whole clusters: one seed decides everything that happens.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Seconds = Annotated[float, typer.Option(min=0.1, help="Of simulated time, before everything is healed.")]
ProfileName = Annotated[
    str | None, typer.Option("--profile", help="One of them for all seeds; without it the seed decides.")
]
Older = Annotated[
    Path | None,
    typer.Option(
        "--older",
        metavar="DIR",
        help="Nodes begin with the version whose sources lie there; the profile `upgrade` leaves it.",
    ),
]


@app.command()
def run(
    seeds: Annotated[str, typer.Option(metavar="A..B", help="The first and the last seed.")] = "1..10",
    profile: ProfileName = None,
    seconds: Seconds = SECONDS,
    keep_going: Annotated[bool, typer.Option(help="Do not stop at the first seed that fails.")] = False,
    older: Older = None,
) -> None:
    """Run seeds; exit code 0 where everything held in all of them, else 1."""
    from chaos.simulator.run import Simulation

    wanted = _range(seeds)
    _prepare()
    failed: list[int] = []
    visited: Counter[str] = Counter()
    simulated_s = 0.0
    software = _software(older)
    began = time.process_time()
    for seed in wanted:
        outcome = Simulation(seed, _profile(seed, profile), seconds, software=software).run()
        visited += outcome.story.visited
        simulated_s += outcome.simulated_s
        if not outcome.ok:
            failed.append(seed)
            _print_story(outcome)
            _print_outcome(outcome)
            if not keep_going:
                break
    cpu_s = time.process_time() - began
    print(f"{simulated_s:,.0f} s simulated in {cpu_s:,.1f} s of CPU: {simulated_s / cpu_s:.0f} times as fast")
    print("visited: " + ", ".join(f"{count} {state}" for state, count in sorted(visited.items())))
    print(f"failed: {', '.join(map(str, failed))}" if failed else "no seed failed")
    raise typer.Exit(1 if failed else 0)


@app.command()
def shrink(
    seed: Annotated[int, typer.Argument(metavar="SEED")],
    profile: ProfileName = None,
    seconds: Seconds = SECONDS,
) -> None:
    """Cut a seed that fails down to the least; the faults go with `replay --faults`."""
    from chaos.simulator.shrink import Shrinker

    _prepare()
    chosen = _profile(seed, profile)
    shrunk = Shrinker(seed, chosen, seconds, lambda line: print(line, file=sys.stderr)).shrink()
    if shrunk is None:
        print(f"seed {seed} does not fail")
        return
    for fault in shrunk.run.faults:
        print(fault)
    command = ["kraft", "sim", "replay", str(seed), "--profile", chosen.name]
    command += ["--seconds", f"{shrunk.run.seconds:g}", *_options(chosen, shrunk.run), "--faults", "FILE"]
    print(f"# {shrunk.broken}\n# {shlex.join(command)}")
    raise typer.Exit(1)


def _options(chosen: Profile, left: ShrunkRun) -> list[str]:
    """Those of `replay` that say what was taken away."""
    from chaos.simulator.shrink import CLIENTS

    topics, nodes = left.profile.topics, left.profile.shape.nodes
    gone = [
        kind
        for kind, without in CLIENTS.items()
        if without(left.profile) == left.profile and without(chosen) != chosen
    ]
    told = {
        "--topics": None if topics.keys() == chosen.topics.keys() else topics,
        "--without": gone or None,
        "--nodes": None if nodes == chosen.shape.nodes else map(str, nodes),
        "--overtaking": left.deviating,
    }
    return [word for name, what in told.items() if what is not None for word in (name, ",".join(what))]


@app.command()
def replay(
    seed: Annotated[int, typer.Argument(metavar="SEED")],
    until: Annotated[float | None, typer.Option(min=0.0, help="Stop at this second.")] = None,
    profile: ProfileName = None,
    seconds: Seconds = SECONDS,
    faults: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="These instead of the seed's, as `shrink` prints them."),
    ] = None,
    topics: Annotated[str | None, typer.Option(metavar="A,B", help="Only these of the profile's.")] = None,
    without: Annotated[
        str | None,
        typer.Option(metavar="KIND,KIND", help="No clients of these kinds: readers, members, admins."),
    ] = None,
    nodes: Annotated[str | None, typer.Option(metavar="1,2", help="Only these of the profile's.")] = None,
    overtaking: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Everywhere else what is first in is first out."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where history, verdict and report.html go.")
    ] = None,
    older: Older = None,
) -> None:
    """Run one seed again and tell its story; the report has it as a page."""
    from chaos.results import RESULTS, make_room
    from chaos.run_files import SCHEDULE
    from chaos.simulator.record import SeedRecord
    from chaos.simulator.run import Simulation

    logging.disable(logging.CRITICAL)
    chosen = _cut_down(_profile(seed, profile), topics, without, nodes)
    deviating = None if overtaking is None else overtaking.split(",")
    listed = None if faults is None else _faults(faults)
    directory = report or RESULTS / f"sim-{seed}"
    make_room(directory)
    simulation = Simulation(
        seed, chosen, seconds, listener=print, until=until, faults=listed, deviating=deviating,
        software=_software(older),
    )  # fmt: skip
    record = SeedRecord(simulation, directory)
    outcome = simulation.run()
    _print_outcome(outcome)
    command = f"kraft sim replay {seed} --profile {chosen.name} --seconds {seconds:g}"
    more = {
        "until": until, "topics": topics, "without": without, "nodes": nodes, "overtaking": overtaking,
        "faults": faults and SCHEDULE, "older": older,
    }  # fmt: skip
    command += "".join(f" --{name} {shlex.quote(f'{it}')}" for name, it in more.items() if it is not None)
    print(f"report: {record.write(outcome, command)}")
    raise typer.Exit(0 if outcome.ok else 1)


def _cut_down(profile: Profile, topics: str | None, without: str | None, nodes: str | None) -> Profile:
    """Where `shrink` has left less of it."""
    from chaos.simulator.shrink import CLIENTS

    if topics is not None:
        kept = topics.split(",")
        profile = replace(profile, topics={name: m for name, m in profile.topics.items() if name in kept})
    if nodes is not None:
        ids, shape = nodes.split(","), profile.shape
        brokers = tuple(node for node in shape.brokers if str(node) in ids)
        profile = replace(profile, shape=replace(shape, brokers=brokers))
    gone = without.split(",") if without else []
    if unknown := [kind for kind in gone if kind not in CLIENTS]:
        raise UsageError(f"no clients are {', '.join(unknown)}; these are: {', '.join(CLIENTS)}")
    for kind in gone:
        profile = CLIENTS[kind](profile)
    return profile


def _profile(seed: int, name: str | None) -> Profile:
    from chaos.simulator.profile import PROFILES, profile_of

    if name is None:
        return profile_of(seed)
    if name not in PROFILES:
        raise UsageError(f"no profile {name!r}; these are: {', '.join(PROFILES)}")
    return PROFILES[name]


def _software(directory: Path | None) -> Software:
    from chaos.simulator.software import THIS, older

    if directory is None:
        return THIS
    try:
        return older(directory)
    except ImportError as error:
        raise CliError(f"{directory}: {error}") from None


def _faults(path: Path) -> list[SimFault]:
    from chaos.simulator.faults import SimFault

    lines = [line for line in text_of(path).splitlines() if line and not line.startswith("#")]
    try:
        return [SimFault.parse(line) for line in lines]
    except ValueError as error:
        raise CliError(f"{path}: {error}") from None


def _range(text: str) -> range:
    first, _, last = text.partition("..")
    with contextlib.suppress(ValueError):
        if seeds := range(int(first), int(last or first) + 1):
            return seeds
    raise UsageError(f"{text!r} is no range of seeds: say 1..200")


def _print_story(outcome: Outcome) -> None:
    """How it came to the first violation: faults, what the cluster decided, and by which rule."""
    first = outcome.violations[0]
    lines = outcome.story.until(first.at_s, STORY_LINES)
    if len(lines) == STORY_LINES:
        print(f"… `kraft sim replay {outcome.seed} --profile {outcome.profile}` tells all of it")
    for line in lines:
        print(line)


def _print_outcome(outcome: Outcome) -> None:
    print(
        f"seed {outcome.seed}, profile {outcome.profile}: {outcome.simulated_s:.1f} s, "
        f"{outcome.events:,} events, digest {outcome.digest:08x}"
    )
    print("  " + ", ".join(f"{count} {what}" for what, count in sorted(outcome.operations.items())))
    for violation in outcome.violations:
        print(f"  {violation}")
    if outcome.violations:
        print(f"  the partitions at {outcome.violations[0].at_s:.4f} s:")
    for line in outcome.partitions:
        print(f"    {line}")
    sys.stdout.flush()


def _prepare() -> None:
    """For many runs in this process."""
    logging.disable(logging.CRITICAL)  # what nodes say of the faults is not the story
    gc.freeze()  # of what was imported nothing becomes garbage
