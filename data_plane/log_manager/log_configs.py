"""How each topic's logs are configured: its own values over the broker's dynamic ones over server.properties.

Path of the data: committed ConfigRecords -> replication/delta_applier.py -> here -> LogConfig of a log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from data_plane.log.config import LogConfig
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.foundation.topic_configs import TOPIC_CONFIGS
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

LONG_CHARS: Final = 1024
"""Of a topic's values: a list of so many takes as long to understand as all other keys together."""

_TOPIC: Final = int(ResourceType.TOPIC)
_BROKER: Final = int(ResourceType.BROKER)


class LogConfigs:
    """Those of one broker. A value that is not understood is logged and skipped: the controller checks
    values, but a newer one may accept more."""

    def __init__(self, broker_id: int, static: LogConfig) -> None:
        """`static`: what server.properties says."""
        self._broker_id = broker_id
        self._static = static
        self.defaults = static
        self._understood: dict[str, tuple[Mapping[str, str], LogConfig]] = {}
        """By topic, of the image's own values and with the defaults of now: all its logs share one."""

    def take_defaults(self, image: MetadataImage) -> None:
        values = {**image.config(_BROKER, ""), **image.config(_BROKER, str(self._broker_id))}
        given = {key.name: key.synonyms[0] for key in TOPIC_CONFIGS.values() if key.synonyms}
        known = {name: values[broker_key] for name, broker_key in given.items() if broker_key in values}
        self._understood.clear()
        self.defaults = LogConfig.understood(
            known,
            self._static,
            lambda problem: logger.warning("Broker-wide log configuration: skipped: %s", problem),
        )

    def takes_long(self, image: MetadataImage, topic: str) -> bool:
        """Whether `of` has something long to understand."""
        values = image.config(_TOPIC, topic)
        known, _ = self._understood.get(topic, (None, None))
        return known is not values and sum(map(len, values.values())) > LONG_CHARS

    def of(self, image: MetadataImage, topic: str) -> LogConfig:
        """Most topics have nothing of their own: a change of the defaults may be asked for all at once."""
        values = image.config(_TOPIC, topic)
        if not values:
            return self.defaults
        known, config = self._understood.get(topic, (None, self.defaults))
        if known is not values:
            config = LogConfig.understood(
                values,
                self.defaults,
                lambda problem: logger.warning("Configuration of %s: skipped: %s", topic, problem),
            )
            self._understood[topic] = values, config
        return config

    def changed_by(self, delta: MetadataDelta, image: MetadataImage) -> set[str] | None:
        """Topics whose logs get another configuration; None: all of them, since the defaults have changed."""
        resources = delta.changed_configs
        if (_BROKER, "") in resources or (_BROKER, str(self._broker_id)) in resources:
            self.take_defaults(image)
            return None
        topics = {name for kind, name in resources if kind == _TOPIC}
        for topic in topics:
            if not image.config(_TOPIC, topic):
                self._understood.pop(topic, None)
        return topics
