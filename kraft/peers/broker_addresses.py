"""Where this node reaches the other brokers: where they have registered, or where its configuration says."""

from __future__ import annotations

from typing import Protocol

from kraft.config.node_config import Config
from kraft.net.client import Address
from metadata_quorum.metadata.image import MetadataImage


class HasImage(Protocol):
    """What knows the newest metadata: the cache of a broker, or the state machine of a controller."""

    @property
    def image(self) -> MetadataImage: ...


class BrokerAddresses:
    """Looked up in the newest metadata each time: a broker may restart at another address."""

    def __init__(self, config: Config, metadata: HasImage) -> None:
        self._listener = config.inter_broker_listener
        self._configured = config.peer_addresses
        self._metadata = metadata

    def find(self, broker_id: int) -> Address | None:
        """None where the broker has not registered, or not with the listener between brokers."""
        broker = self._metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if endpoint is None:
            return None
        configured = self._configured.get(broker_id)
        if configured is not None:
            return Address(configured.host, configured.port)
        return Address(endpoint.host, endpoint.port)
