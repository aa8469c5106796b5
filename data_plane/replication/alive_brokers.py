"""Which brokers may be in an ISR, and which of their log directories are online, as far as the metadata
applied here says.

    DeltaApplier (committed metadata) -> here -> LeaderState, the low watermark
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from metadata_quorum.foundation.model import BrokerRegistration
from metadata_quorum.metadata.delta import MetadataDelta


class AliveBrokers:
    """One per broker; its partitions share it and see every change at once."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        """Broker epochs of the brokers that are unfenced and not shutting down."""
        self._registrations: Mapping[int, BrokerRegistration] = {}

    def take_registrations(self, registrations: Mapping[int, BrokerRegistration]) -> None:
        self._registrations = registrations

    def take_changes(self, delta: MetadataDelta) -> None:
        for broker_id, broker in delta.changed_brokers.items():
            if broker is not None and broker.active:
                self.epochs[broker_id] = broker.broker_epoch
            else:
                self.epochs.pop(broker_id, None)

    def has_online_dir(self, broker_id: int, directory: UUID) -> bool:
        """True also where nothing is known of the broker."""
        broker = self._registrations.get(broker_id)
        return broker is None or broker.has_online_dir(directory)
