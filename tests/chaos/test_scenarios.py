"""Scenarios of transactions and groups, the drawn one and the quiet one; what the command line does besides,
and what it refuses. The other families are in files of their own, so that two workers share them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from chaos import events, seeds
from chaos.run_files import EVENTS, HISTORY, SCHEDULE, VERDICT
from kraft.cli.errors import CliError
from kraft.local.local_cluster import LocalCluster
from tests.support.chaos.scenario_runs import (
    AS_IT_IS,
    OTHERS,
    TIMEOUT_S,
    chaos,
    parameters,
    run_and_judge,
    run_apart,
)
from tests.support.waiting import wait_until


@pytest.mark.heavy
@pytest.mark.parametrize("name", parameters(OTHERS))
def test_a_scenario_is_what_it_says(name: str, tmp_path: Path) -> None:
    run_and_judge(name, tmp_path)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.row("C2")
def test_any_kafka_cluster_can_be_judged(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    """However short the time: the clients go on until they have had work enough for a verdict."""
    directory, there = tmp_path / "run", ("--bootstrap-server", shared_cluster.bootstrap)
    result = run_apart(AS_IT_IS, "workload", directory, "--minutes", "0.01", *there)
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads((directory / VERDICT).read_text())["checker"]["stats"]["acknowledged"] > 0
    assert not (directory / EVENTS).exists()


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.row("C2")
@pytest.mark.long  # as `everything` itself
def test_a_schedule_is_played_again_from_its_file(tmp_path: Path) -> None:
    steps = tmp_path / "by-hand.txt"
    steps.write_text("at 0.5 for 1: pause leader(all-0)\n")
    directory = tmp_path / "run"
    options = ("--minutes", "0.05", "--schedule", str(steps))
    result = run_apart(AS_IT_IS, "everything", directory, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (directory / SCHEDULE).read_text() == steps.read_text()
    faults = [event.fault.split()[0] for event in events.read(directory / EVENTS) if event.kind == "begin"]
    assert faults == ["pause"]


@pytest.mark.long
def test_many_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        seeds.main(["workload", "--seeds", "3,4", "--jobs", "2", "--seconds", "1", "--keep", str(tmp_path)])
        == 0
    )
    out = capsys.readouterr().out
    assert "seed 3: held" in out
    assert "seed 4: held" in out
    assert "2 held, 0 broken" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.heavy
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chaos", "run", "leader-kill", "--report", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert any("kill" in line for line in run.stdout)
        run.send_signal(signal.SIGINT)
        run.stdout.close()
        assert run.wait() == 130

    def left() -> list[int]:
        return [
            process.pid for process in psutil.process_iter(["cmdline"])
            if any(str(tmp_path) in word for word in process.info["cmdline"] or ())
        ]  # fmt: skip

    wait_until(lambda: not left(), "every process has ended")
    assert (tmp_path / HISTORY).exists()


# Refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "nothing"], "there is no scenario nothing; there are isr-shrink"),
        (["run", "isr-shrink", "--minutes", "1"], "has a schedule of its own"),
        (["run", "isr-shrink", "--bootstrap-server", "127.0.0.1:1"], "is for the scenario workload"),
    ],
)
def test_what_cannot_be_is_reported_in_a_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(CliError) as refused:
        chaos(*words)
    assert sentence in str(refused.value)


def test_a_directory_that_holds_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CliError, match="not the directory of a run"):
        chaos("run", "isr-shrink", "--report", tmp_path)
    assert os.listdir(tmp_path) == ["thesis.txt"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("at 1: explode 1", "explode: no fault"),
        ("kill 1", "is no step"),
        ("at 1: kill 9", "the nodes are 1, 2, 3"),
    ],
)
def test_a_schedule_that_cannot_be_played_is_refused_first(line: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "steps").write_text(line + "\n")
    with pytest.raises(CliError) as refused:
        chaos("run", "everything", "--schedule", tmp_path / "steps", "--report", tmp_path / "run")
    assert sentence in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_history_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text("{}\n")
    with pytest.raises(CliError, match="version"):
        chaos("check", tmp_path)
