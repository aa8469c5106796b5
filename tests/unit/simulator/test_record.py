"""A seed's run is recorded as a run of the lab is, and is the same run for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chaos import events, history
from chaos.run_files import CLUSTER, EVENTS, HISTORY, STORY, VERDICT
from chaos.simulator.faults import SimFault
from chaos.simulator.profile import PROFILES
from chaos.simulator.record import SeedRecord
from chaos.simulator.run import Simulation

FAULTS = [SimFault.parse("at 0.5 for 1: isolate 2"), SimFault.parse("at 1 for 1: kill leader")]


def simulation() -> Simulation:
    made = Simulation(3, PROFILES["stranded"], 2.5, faults=FAULTS)
    made.scheduler.at(3.0, made.violated, "a rule", "broken on purpose")
    return made


def shown(page: str) -> dict[str, Any]:
    """The data of a report."""
    _, _, rest = page.partition('<script type="application/json" id="data">')
    data: dict[str, Any] = json.loads(rest.partition("</script>")[0])
    return data


@pytest.mark.row("C7")
def test_a_recorded_run_is_the_run_that_is_not(tmp_path: Path) -> None:
    recorded = simulation()
    record = SeedRecord(recorded, tmp_path)
    outcome = recorded.run()
    page = shown(record.write(outcome, "kraft sim replay 3").read_text())
    assert outcome.digest == simulation().run().digest
    assert page["command"] == "kraft sim replay 3"
    assert not page["ok"]
    assert page["expectations"] == [
        {"name": "a rule", "ok": False, "detail": "at 3.000 s: broken on purpose"}
    ]
    happened = [(event.kind, event.fault, event.detail) for event in events.read(tmp_path / EVENTS)]
    assert happened[:3] == [
        ("begin", "isolate 2", None), ("begin", "kill 2", "leader is 2"), ("end", "isolate 2", None),
    ]  # fmt: skip
    assert [what for kind, what, _ in happened if kind == "point"] == [events.CALM, events.HEALED]
    told = [json.loads(line)["what"] for line in (tmp_path / STORY).read_text().splitlines()]
    assert any("fenced or shutting down" in what for what in told), "the rule behind a decision"
    assert any(what.startswith("all-0: ") for what in told), "the partitions at the violation"
    seen = [json.loads(line) for line in (tmp_path / CLUSTER).read_text().splitlines()]
    assert {line["f"] for line in seen} >= {"node", "controller", "partition"}
    assert len(history.read(tmp_path / HISTORY).operations) == len(outcome.history.operations)
    assert json.loads((tmp_path / VERDICT).read_text())["checker"]["ok"]
