"""Scenarios of the lab on simulated nodes: what holds there holds here, what breaks is found here too, and
what the simulator cannot play is refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chaos import events, schedule
from chaos.compare import Comparison
from chaos.run import Plan, RunVerdict
from chaos.run_files import CLUSTER, EVENTS, HISTORY, REPORT, SCHEDULE, VERDICT
from chaos.scenarios import leadership
from chaos.scenarios.expect import Finding
from chaos.scenarios.table import SCENARIOS
from chaos.simulator import stage
from chaos.simulator.scenario_run import NotSimulated, play
from kraft.api import produce
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.chaos.scenario_runs import LIVE, chaos

NOT_SIMULATED = {
    "hw-truncation", "unclean-election", "transactions", "zombie-producer", "group-churn", "reassignment",
    "everything",
}  # fmt: skip

LONG = {
    "coordinator-kill", "deaf-leader", "leader-kill", "rolling-restart", "slow-follower", "workload",
}  # fmt: skip
"""They cost seconds, and the seeds of test_more_seeds do the same to leaders and coordinators."""


def plan(name: str, directory: Path, steps: str | None = None) -> Plan:
    return Plan(
        scenario=SCENARIOS[name], directory=directory, seed=7,
        steps=None if steps is None else schedule.parse(steps),
    )  # fmt: skip


@pytest.mark.row("C7")
def test_a_schedule_is_played_by_its_text_and_recorded_as_in_the_lab(tmp_path: Path) -> None:
    steps = "at 0.5 for 1: kill leader(all-0)\nat 2: restart controller\nat 2.5: await leader(one-0)\n"
    verdict = play(plan("majority-loss", tmp_path, steps))
    names = {HISTORY, EVENTS, CLUSTER, SCHEDULE, VERDICT, REPORT}
    assert names <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / SCHEDULE).read_text() == steps
    happened = events.read(tmp_path / EVENTS)
    kinds = [event.fault.split()[0] for event in happened if event.kind == "begin"]
    assert kinds == ["kill", "restart", "await"]
    assert "leader(all-0) is" in (happened[0].detail or "")
    assert [event.fault for event in happened if event.kind == "point"] == [events.CALM, events.HEALED]
    written = json.loads((tmp_path / VERDICT).read_text())
    assert RunVerdict.from_dict(written).to_dict() == written
    broken = [each.name for each in verdict.expectations if not each.ok]
    assert broken == ["nothing is committed without a majority"], "there was one all the time"


@pytest.mark.heavy
@pytest.mark.pure("a bug is planted in Python")
def test_what_breaks_a_promise_breaks_the_simulated_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader acknowledges what it has alone: what the smaller side was told is lost with it."""

    def at_once(
        appended: Sequence[object], *, on_done: Callable[[list[ErrorCode]], None], **_: object
    ) -> None:
        on_done([ErrorCode.NONE] * len(appended))

    monkeypatch.setattr(produce, "await_replication", at_once)
    verdict = play(plan("split-brain", tmp_path, f"at 0.5 for 7: {leadership.SPLIT}"))
    broken = {each.name for each in verdict.expectations if not each.ok}
    assert {"no forbidden anomaly", "the smaller side commits nothing"} <= broken
    assert not verdict.ok


@pytest.mark.heavy
def test_the_damage_keeps_a_replica_out_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "flip_bit", lambda disk, partition, random: "nothing is damaged")
    verdict = play(plan("bit-flip", tmp_path))
    broken = {each.name for each in verdict.expectations if not each.ok}
    assert "all-0: the damaged replica stays out of the ISR" in broken


@pytest.mark.heavy
@pytest.mark.row("C6")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])
        for name in sorted(SCENARIOS.keys() - NOT_SIMULATED - LIVE)
    ],
)
def test_a_scenario_that_holds_in_the_lab_holds_simulated(name: str, tmp_path: Path) -> None:
    verdict = play(plan(name, tmp_path))
    assert [each for each in verdict.expectations if not each.ok] == []
    assert verdict.ok


@pytest.mark.parametrize("name", sorted(NOT_SIMULATED))
def test_what_the_simulator_cannot_play_is_refused_first(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotSimulated):
        play(plan(name, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_command_plays_a_schedule_in_virtual_time(tmp_path: Path) -> None:
    steps = ("at 0.2 for 0.5: cut leader(all-0)-follower(all-0)", "at 0.5: kill leader")
    (tmp_path / "steps").write_text("\n".join(steps))
    result = chaos(
        "run", "workload", "--minutes", "0.02", "--simulate", "--schedule", tmp_path / "steps",
        "--report", tmp_path / "run",
    )  # fmt: skip
    assert "the simulator's oracles hold" in result.output
    assert "workload, seed 1: held" in result.output
    assert result.exit_code == 0


def test_verdicts_are_compared_by_name_and_by_kind() -> None:
    counts = {"unseen": {"forbidden": 2, "allowed": 0}}
    checker = {"ok": True, "anomalies": [], "counts": {}, "not_judged": {}, "stats": {}}
    live = RunVerdict(
        "made-up", 1, True, [Finding("heals", True, "in 2 s"), Finding("live", False, "")], checker, None
    )
    assert Comparison(live, replace(live, expectations=live.expectations[:1])).agrees
    late = replace(
        live, expectations=[Finding("heals", False, "never")], checker={**checker, "counts": counts}
    )
    assert Comparison(live, late).differences == [
        "forbidden anomalies: none live, unseen simulated",
        "heals: held in the live lab (in 2 s), BROKEN in the simulator (never)",
    ]
    oracle = Finding("the simulator's oracles hold", False, "ACKED_IN_LOG")
    assert not Comparison(live, replace(live, expectations=[oracle])).agrees
