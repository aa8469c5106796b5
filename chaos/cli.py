"""`kraft chaos`: scenarios and their verdicts, and a cluster that is broken by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chaos.live import commands
from kraft.cli.bootstrap import first_broker
from kraft.cli.errors import CliError, UsageError
from kraft.cli.interruption import stop_in_order
from kraft.cli.tables import prints_table, show
from kraft.cli.text_file import text_of

if TYPE_CHECKING:
    from chaos.checker import Verdict as Judgement
    from chaos.run import Plan, RunVerdict
    from chaos.scenarios.scenario import Scenario
    from chaos.schedule import Schedule

SHOWN_ANOMALIES = 10

app = typer.Typer(
    name="chaos",
    help="Break a cluster on purpose, and have its history judged.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
commands.add_to(app)


@app.command("list")
@prints_table
def list_scenarios() -> None:
    """The scenarios, each with its story."""
    from chaos.scenarios.table import SCENARIOS

    show(("scenario", "story"), [(name, scenario.story) for name, scenario in SCENARIOS.items()])


ScenarioName = Annotated[str, typer.Argument(metavar="SCENARIO", help="See `kraft chaos list`.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same schedule and clients.")]
Minutes = Annotated[
    float | None, typer.Option(min=0.01, help="Of faults, where the scenario has no schedule of its own.")
]
ReportDirectory = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where history, verdict and report.html go.")
]
ScheduleFile = Annotated[
    Path | None,
    typer.Option("--schedule", metavar="FILE", help="Play these steps, such as a schedule.txt cut short."),
]


@app.command()
def run(
    scenario: ScenarioName,
    seed: Seed = 1,
    minutes: Minutes = None,
    report: ReportDirectory = None,
    schedule_file: ScheduleFile = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Judge a cluster that is there: the scenario workload only."),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="On simulated nodes, in virtual time: docs/SIMULATION.md.")
    ] = False,
) -> None:
    """Run a scenario on a cluster of its own; exit code 0 where everything held, else 1."""
    from chaos.run import run, run_against

    stop_in_order()
    if bootstrap_server is not None and (scenario != "workload" or schedule_file is not None or simulate):
        raise UsageError(
            "faults need a cluster of their own; --bootstrap-server is for the scenario workload"
        )
    if bootstrap_server is not None:
        first_broker(bootstrap_server)  # before a directory is made
    with _planned(scenario, seed, minutes, schedule_file, report) as plan:
        if simulate:
            verdict = _simulated(plan)
        else:
            verdict = run(plan) if bootstrap_server is None else run_against(plan, bootstrap_server)
    _show(verdict, plan)
    raise typer.Exit(0 if verdict.ok else 1)


@app.command()
def compare(
    scenario: ScenarioName,
    seed: Seed = 1,
    minutes: Minutes = None,
    report: ReportDirectory = None,
    schedule_file: ScheduleFile = None,
) -> None:
    """Play a scenario's schedule in the live lab and in the simulator; exit code 0 where both verdicts are
    the same, else 1."""
    from chaos.compare import compare
    from chaos.run_files import LIVE, SIMULATED
    from chaos.simulator.scenario_run import NotSimulated

    stop_in_order()
    with _planned(scenario, seed, minutes, schedule_file, report) as plan:
        try:
            compared = compare(plan)
        except NotSimulated as why:
            raise CliError(str(why)) from None
    for name, verdict in ((LIVE, compared.live), (SIMULATED, compared.simulated)):
        print(f"\n{name}:")
        _show(verdict, replace(plan, directory=plan.directory / name))
    print("\n" + ("\n".join(compared.differences) or "both verdicts are the same"))
    raise typer.Exit(0 if compared.agrees else 1)


@app.command()
def check(
    path: Annotated[
        Path, typer.Argument(metavar="HISTORY", help="history.jsonl, or the directory of a run.")
    ],
) -> None:
    """Judge a history; exit code 1 where it holds a forbidden anomaly, or not all could be judged."""
    from chaos import history
    from chaos.checker import check as judge
    from chaos.checker.text import conclusion
    from chaos.run_files import HISTORY

    path = path / HISTORY if path.is_dir() else path
    try:
        verdict = judge(history.read(path))
    except ValueError as error:
        raise CliError(str(error)) from None
    _show_anomalies(verdict)
    stats = verdict.stats
    print(
        f"{conclusion(verdict)}: {stats['operations']:,} operations, "
        f"{stats['acknowledged']:,} sends acknowledged, {stats['polled']:,} messages polled"
    )
    raise typer.Exit(0 if verdict.ok else 1)


# Arguments --------------------------------------------------------------------------------------------------


@contextmanager
def _planned(
    scenario: str, seed: int, minutes: float | None, schedule_file: Path | None, report: Path | None
) -> Iterator[Plan]:
    """The plan, and room for its files; what hangs while it is carried out is ended."""
    from chaos.results import RESULTS, make_room
    from chaos.run import Plan
    from chaos.watchdog import ended_if_it_hangs

    chosen = _scenario(scenario)
    if minutes is not None and chosen.seconds is None:
        raise UsageError(f"{scenario} has a schedule of its own; --minutes is for scenarios without one")
    steps = None if schedule_file is None else _steps(schedule_file, chosen)
    directory = report or RESULTS / f"{scenario}-{seed}"
    make_room(directory)
    with _progress() as say:
        plan = Plan(
            scenario=chosen, directory=directory, seed=seed,
            seconds=None if minutes is None else 60 * minutes, steps=steps, say=say,
        )  # fmt: skip
        assert sys.__stderr__ is not None
        with ended_if_it_hangs(plan.lasts_s, sys.__stderr__):
            yield plan


def _simulated(plan: Plan) -> RunVerdict:
    from chaos.simulator.scenario_run import NotSimulated, play

    try:
        return play(plan)
    except NotSimulated as why:
        raise CliError(str(why)) from None


def _scenario(name: str) -> Scenario:
    from chaos.scenarios.table import SCENARIOS

    if name not in SCENARIOS:
        raise UsageError(f"there is no scenario {name}; there are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def _steps(path: Path, scenario: Scenario) -> Schedule:
    from chaos import faults, roles, schedule
    from chaos.live.link_faults import BadFault

    nodes = range(1, scenario.nodes + 1)
    try:
        steps = schedule.parse(text_of(path))
        for step in steps:
            faults.parse(roles.fill_with(step.fault, nodes), nodes, scenario.clients)
    except (schedule.BadSchedule, BadFault) as error:
        raise CliError(f"{path}: {error}") from None
    return steps


# Output -----------------------------------------------------------------------------------------------------


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What happens, line by line; on a terminal with a sign that it is still going on."""
    if not sys.stdout.isatty():
        yield lambda line: print(line, flush=True)
        return
    from rich.console import Console

    console = Console(highlight=False)
    with console.status("running") as status:

        def say(line: str) -> None:
            console.print(line, markup=False)
            status.update(line.strip())

        yield say


def _show(verdict: RunVerdict, plan: Plan) -> None:
    from chaos.checker import Verdict as Judgement
    from chaos.run_files import REPORT

    print()
    for finding in verdict.expectations:
        print(f"{'held  ' if finding.ok else 'BROKEN'}  {finding.name}: {finding.detail}")
    _show_anomalies(Judgement.from_dict(verdict.checker), ledger=verdict.ledger)
    print(f"\n{plan.scenario.name}, seed {plan.seed}: {'held' if verdict.ok else 'BROKEN'}")
    print(f"report: {plan.directory / REPORT}")


def _show_anomalies(verdict: Judgement, *, ledger: Sequence[str] = ()) -> None:
    """`ledger`: whose records may be lost."""
    for entry in ledger:
        print(f"expected: {entry}")
    for kind, count in verdict.counts.items():
        expected = f", {count.expected} expected" if count.expected else ""
        print(f"{kind}: {count.forbidden} forbidden, {count.allowed - count.expected} tolerated{expected}")
    forbidden = [anomaly for anomaly in verdict.anomalies if not anomaly.allowed]
    for anomaly in forbidden[:SHOWN_ANOMALIES]:
        print(f"  {anomaly.kind} at {anomaly.key}: {anomaly.summary}")
    if len(forbidden) > SHOWN_ANOMALIES:
        print(f"  and {len(forbidden) - SHOWN_ANOMALIES} more with evidence")
    for kind, why in verdict.not_judged.items():
        print(f"{kind} was not judged: {why}")
