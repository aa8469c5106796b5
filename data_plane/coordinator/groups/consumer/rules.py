"""Configuration of groups of the consumer protocol; a group may have its own values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class MigrationPolicy(Enum):
    """group.consumer.migration.policy: which way a group may change its protocol while it has members."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Names are those of Kafka's keys, without group.consumer."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is used where no member names one."""
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    """So that patterns follow what members may see."""

    def of_group(self, own: Mapping[str, str]) -> ConsumerGroupConfig:
        """With the values that were set for one group."""
        if not own:
            return self
        return replace(
            self,
            session_timeout_ms=int(own.get(SESSION_TIMEOUT, self.session_timeout_ms)),
            heartbeat_interval_ms=int(own.get(HEARTBEAT_INTERVAL, self.heartbeat_interval_ms)),
        )
