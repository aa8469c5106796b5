"""A scenario through the command line, with a fixed seed, and what every one of them must leave behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from chaos import run
from chaos.cli import app
from chaos.compare import Comparison
from chaos.run import Plan, RunVerdict
from chaos.run_files import CLUSTER, EVENTS, HISTORY, NODES, REPORT, SCHEDULE, SIMULATED, STORY, TWIN, VERDICT
from chaos.scenarios import disks, leadership, quorum, replication
from chaos.scenarios.scenario import Scenario
from chaos.scenarios.table import SCENARIOS
from chaos.simulator import scenario_run
from tests.support.nodes.cluster import FEW_COORDINATORS
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]

OF_REPLICATION = (*replication.SCENARIOS, *disks.SCENARIOS)
OF_LEADERSHIP = (*leadership.SCENARIOS, *quorum.SCENARIOS)
OTHERS = tuple(each for each in SCENARIOS.values() if each not in (*OF_REPLICATION, *OF_LEADERSHIP))
"""Each family has a test file, so that two workers share them."""

ROWS = {
    "isr-shrink": ("C1", "C2", "C4"),
    "hw-truncation": ("C1", "C2", "C3", "C5"),
    "slow-follower": ("C1", "C6"),
    "bit-flip": ("C1", "L7"),
    "transactions": ("C2", "C6", "P4"),
    "zombie-producer": ("C2", "C6", "P4"),
    "group-churn": ("C2", "C6", "P4"),
    "reassignment": ("C2", "C6", "Q11"),
    "everything": ("C1", "C2"),
    "workload": ("C2",),
}
"""The others drive C6."""
MINUTES = {"everything": "0.2", "workload": "0.05"}
LIVE = frozenset({"isr-shrink", "hw-truncation", "unclean-election", "transactions"})
"""In CI: one whose verdict the simulator must share, one with a planted twin, and two that it cannot
play. What else it can play is simulated there (test_scenario_run), and live in `make test-long`."""
TIMEOUT_S = 2000
"""Of the test: what hangs is ended after more than 600 s, and run once more."""


def chaos(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def parameters(scenarios: Iterable[Scenario]) -> list[object]:
    return [
        pytest.param(
            each.name,
            id=each.name,
            marks=[
                pytest.mark.row(*ROWS.get(each.name, ("C1", "C2", "C6"))),
                pytest.mark.timeout(TIMEOUT_S),
                *([] if each.name in LIVE else [pytest.mark.long]),
                *([pytest.mark.pure("its twin's bug is planted in Python")] if each.twin_plant else []),
            ],
        )
        for each in scenarios
    ]


OF_GROUPS = frozenset({"coordinator-kill", "group-churn", "transactions", "everything"})
GENTLE_PER_S = 100.0
"""Operations of all clients: enough to judge by, and a busy machine keeps up."""


def gently(scenario: Scenario) -> Scenario:
    """Slower, with few coordinators; and with no group where it is not about groups, whose members may hang
    (chaos/watchdog.py)."""
    pace = replace(scenario.pace, operations_per_s=min(scenario.pace.operations_per_s, GENTLE_PER_S))
    mix = scenario.mix if scenario.name in OF_GROUPS else replace(scenario.mix, subscribe=0.0)
    return replace(scenario, pace=pace, mix=mix, settings={**FEW_COORDINATORS, **scenario.settings})


COMPARED = frozenset({"isr-shrink", "split-brain", "majority-loss"})
"""The simulator plays their schedules too, and must come to the same verdict."""


PATIENCE = ("WARM_PATIENCE_S", "HEAL_PATIENCE_S", "PROGRESS_PATIENCE_S", "FINAL_PATIENCE_S")


def main(name: str, *options: str) -> None:
    """`kraft chaos run` of a scenario, gently and with more patience."""
    SCENARIOS[name] = gently(SCENARIOS[name])
    for constant in PATIENCE:
        setattr(run, constant, PATIENCE_S)
    app(["run", name, *options])


HUNG = re.compile(r'workload/consumer\.py", line \d+ in end$', re.MULTILINE)
"""In the stacks of a run that was ended: a member was being closed."""
AS_IT_IS = ("chaos", "run")
GENTLY = ("tests.support.chaos.scenario_runs",)


def run_apart(
    program: Sequence[str], name: str, directory: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """A scenario in a process of its own. Where members of groups close, confluent-kafka may wait for ever
    and keep the interpreter's lock (chaos/watchdog.py): then it runs again, beside what is left of that."""
    command = [sys.executable, "-m", *program, name, "--report", str(directory), *options]
    once = partial(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=False)
    done = once()
    if HUNG.search(done.stderr) is None:
        return done
    print(done.stderr)
    directory.rename(f"{directory}-hung")
    return once()


def run_and_judge(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    minutes = ["--minutes", MINUTES[name]] if name in MINUTES else []
    result = run_apart(GENTLY, name, directory, "--seed", "7", *minutes)
    assert (directory / VERDICT).exists(), result.stderr
    verdict = json.loads((directory / VERDICT).read_text())
    broken = [found for found in verdict["expectations"] if not found["ok"]]
    assert not broken, broken
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{name}, seed 7: held" in result.stdout
    assert {HISTORY, EVENTS, CLUSTER, STORY, SCHEDULE, VERDICT, REPORT} <= {
        path.name for path in directory.iterdir()
    }
    assert not (directory / NODES).exists(), "the nodes' directories are kept only where something failed"
    assert chaos("check", directory).exit_code == (1 if name == "unclean-election" else 0)
    if name == "unclean-election":  # the ledger is the run's, not the history's
        assert verdict["ledger"]
        assert "forbidden, 0 tolerated" in result.stdout
    if SCENARIOS[name].twin_plant is not None:
        assert chaos("check", directory / TWIN).exit_code == 1, (
            "the planted bug is found in the history alone"
        )
    if name in COMPARED:
        plan = Plan(scenario=gently(SCENARIOS[name]), directory=directory / SIMULATED, seed=7)
        simulated = scenario_run.play(plan)
        assert Comparison(RunVerdict.from_dict(verdict), simulated).differences == []


if __name__ == "__main__":
    main(*sys.argv[1:])
