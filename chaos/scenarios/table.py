"""All scenarios, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chaos.scenarios import disks, leadership, quorum, replication, transactions
from chaos.scenarios.everything import EVERYTHING
from chaos.scenarios.quiet import WORKLOAD
from chaos.scenarios.reassignment import REASSIGNMENT
from chaos.scenarios.scenario import Scenario

SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        *replication.SCENARIOS,
        *leadership.SCENARIOS,
        *quorum.SCENARIOS,
        *disks.SCENARIOS,
        *transactions.SCENARIOS,
        REASSIGNMENT,
        EVERYTHING,
        WORKLOAD,
    )
}
