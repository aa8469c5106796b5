"""Which cluster a simulation runs, and what its clients do.

profile_of(seed) -> Profile: roles, controllers, settings, topics and clients, from the seed's own stream
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chaos.history import TopicMode
from chaos.simulator.cluster import ClusterShape
from chaos.simulator.faults import GENTLE, Severity

ALL: Final = -1
COMBINED_3: Final = ClusterShape((1, 2, 3), (1, 2, 3))


@dataclass(frozen=True, slots=True)
class Profile:
    """See the module."""

    name: str
    shape: ClusterShape
    topics: Mapping[str, TopicMode]
    """What is written, and how."""
    pause_s: float = 0.1
    """Between two operations of a client, at most."""
    producers: int = 1
    """For each topic."""
    readers: int = 1
    """For all topics."""
    severity: Severity = GENTLE
    """What is done to the cluster."""
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """Every partition."""
        return [f"{topic}-{i}" for topic, mode in self.topics.items() for i in range(mode.partitions)]


COMBINED: Final = Profile(
    "combined",
    COMBINED_3,
    {
        "all": TopicMode(2, ALL),
        "idempotent": TopicMode(1, ALL, idempotent=True),
        "one": TopicMode(1, 1),
    },
)

PROFILES: Final[Mapping[str, Profile]] = {each.name: each for each in (COMBINED,)}


def profile_of(seed: int) -> Profile:
    """The seeds take turns."""
    profiles = list(PROFILES.values())
    return profiles[seed % len(profiles)]
