"""The features of a cluster, and the levels of each that a node can run: those of Kafka 4.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from metadata_quorum.foundation.errors import ExitCode, FatalError

METADATA_VERSION: Final = "metadata.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 27),  # up to 4.1-IV1
    ELR_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
}

KNOWS_CONTROLLERS: Final = 15
"""3.7-IV0: the first metadata.version in which controllers register (KIP-919)."""

BOOTSTRAP_FEATURES: Final = {name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()}
"""What a new cluster starts with."""


def check_supported(levels: Mapping[str, int]) -> None:
    """Raises `FatalError` where a cluster runs at a level at which this version cannot."""
    for name, level in levels.items():
        low, high = SUPPORTED_FEATURES.get(name, (0, 0))
        if level and not low <= level <= high:
            raise FatalError(
                ExitCode.BAD_CONFIG,
                f"the cluster runs at {name}={level}, and this version of kraft supports {low} to {high}. "
                "Start the version that this node had.",
            )
