"""One schedule in the live lab and in the simulator, and their verdicts side by side.

    Plan -> run (live/), scenario_run.play (simulated/) -> Comparison: by expectation, by kind of anomaly

The same code on real sockets, disks and clients, and on simulated ones: where the verdicts differ, one of the
two is not what the other takes it for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chaos.checker import Verdict
from chaos.run import Plan, RunVerdict, run
from chaos.run_files import LIVE, SIMULATED
from chaos.scenarios.expect import Finding
from chaos.simulator import scenario_run


@dataclass(frozen=True)
class Comparison:
    """Two verdicts over one schedule."""

    live: RunVerdict
    simulated: RunVerdict

    @property
    def differences(self) -> list[str]:
        """Sentences; empty where the verdicts are the same."""
        live, simulated = _by_name(self.live), _by_name(self.simulated)
        found = [
            f"{name}: {_word(live[name])} in the live lab ({live[name].detail}), "
            f"{_word(simulated[name])} in the simulator ({simulated[name].detail})"
            for name in live.keys() & simulated.keys()
            if live[name].ok != simulated[name].ok
        ]
        kinds = forbidden_kinds(self.live), forbidden_kinds(self.simulated)
        if kinds[0] != kinds[1]:
            found.append(f"forbidden anomalies: {_listed(kinds[0])} live, {_listed(kinds[1])} simulated")
        only = [each for name, each in simulated.items() if name not in live and not each.ok]
        return sorted(found) + [f"only in the simulator: {each.name}: {each.detail}" for each in only]

    @property
    def agrees(self) -> bool:
        return not self.differences


def compare(plan: Plan) -> Comparison:
    """Plays it in both. Raises NotSimulated before anything starts."""
    scenario_run.simulated_profile(plan)
    simulated = scenario_run.play(replace(plan, directory=plan.directory / SIMULATED))
    live = run(replace(plan, directory=plan.directory / LIVE))
    return Comparison(live, simulated)


def forbidden_kinds(verdict: RunVerdict) -> frozenset[str]:
    """Of anomalies that the checker found."""
    counts = Verdict.from_dict(verdict.checker).counts
    return frozenset(kind for kind, count in counts.items() if count.forbidden)


def _by_name(verdict: RunVerdict) -> Mapping[str, Finding]:
    return {each.name: each for each in verdict.expectations}


def _word(finding: Finding) -> str:
    return "held" if finding.ok else "BROKEN"


def _listed(kinds: frozenset[str] | Sequence[str]) -> str:
    return ", ".join(sorted(kinds)) or "none"
