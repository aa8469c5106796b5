"""All scenarios, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chaos.scenarios.everything import EVERYTHING
from chaos.scenarios.scenario import Scenario

SCENARIOS: Final[Mapping[str, Scenario]] = {scenario.name: scenario for scenario in (EVERYTHING,)}
