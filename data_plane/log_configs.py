"""How each topic's logs are configured: its own values over the broker's dynamic ones over server.properties.

Way of the data: committed ConfigRecords -> partitions.py -> here -> LogConfig of a log.
"""

from __future__ import annotations

import logging
from typing import Final

from data_plane.log.config import TOPIC_CONFIGS, LogConfig
from metadata_quorum.errors import BrokerError
from metadata_quorum.image import MetadataDelta, MetadataImage
from metadata_quorum.model import ResourceType

logger = logging.getLogger(__name__)

_TOPIC: Final = int(ResourceType.TOPIC)
_BROKER: Final = int(ResourceType.BROKER)


class LogConfigs:
    """Of one broker. What is not understood is said and passed over: the controller checks values, but a
    newer one may know more."""

    def __init__(self, broker_id: int, static: LogConfig) -> None:
        """`static`: what server.properties says."""
        self._broker_id = broker_id
        self._static = static
        self.defaults = static

    def take_defaults(self, image: MetadataImage) -> None:
        values = {**image.config(_BROKER, ""), **image.config(_BROKER, str(self._broker_id))}
        known = {r.name: values[r.broker_key] for r in TOPIC_CONFIGS.values() if r.broker_key in values}
        try:
            self.defaults = LogConfig.from_map(known, self._static)
        except BrokerError as e:
            logger.error("Broker-wide log configuration is not understood: %s", e)

    def of(self, image: MetadataImage, topic: str) -> LogConfig:
        try:
            return LogConfig.from_map(dict(image.config(_TOPIC, topic)), self.defaults)
        except BrokerError as e:
            logger.error("Configuration of %s is not understood: %s", topic, e)
            return self.defaults

    def changed_by(self, delta: MetadataDelta, image: MetadataImage) -> set[str] | None:
        """Topics whose logs are configured anew; None: all of them, for the defaults have changed."""
        resources = delta.changed_configs
        if (_BROKER, "") in resources or (_BROKER, str(self._broker_id)) in resources:
            self.take_defaults(image)
            return None
        return {name for kind, name in resources if kind == _TOPIC}
