"""What a seed decides before a run of the Raft simulation (raft_world.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from metadata_quorum.raft.config import RaftConfig


@dataclass(frozen=True, slots=True)
class Options:
    """What a seed decides before the run."""

    voters: int
    fault_seconds: float = 10.0
    heal_seconds: float = 12.0
    power_loss: bool = False
    duplicates: float = 0.0
    loss: float = 0.0
    lingering: bool = False
    """Frames of a replaced connection still arrive."""
    wipes: bool = False
    config: RaftConfig = field(default_factory=RaftConfig)

    @staticmethod
    def from_seed(seed: int, voters: int) -> Options:
        random = Random(seed * 7919 + voters)
        config = RaftConfig(
            append_bytes=random.choice([40, 150, 65_536]),
            appends_in_flight=random.choice([2, 8, 32]),
            snapshot_entries=random.choice([15, 60, 100_000]),
            snapshot_chunk_bytes=random.choice([64, 4096]),
            proposal_timeout_ms=3000,
        )
        return Options(
            voters=voters,
            power_loss=random.random() < 0.6,
            duplicates=random.choice([0.0, 0.0, 0.1]),
            loss=random.choice([0.0, 0.0, 0.05]),
            lingering=random.random() < 0.5,
            wipes=random.random() < 0.3,
            config=config,
        )
