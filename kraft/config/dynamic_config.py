"""Broker keys that change while the node runs: committed values take precedence over server.properties.

    ConfigRecords -> image -> `DynamicBrokerConfig.take` -> Config -> `apply` of node/node.py

Defaults of topics are not among them: data_plane/log_manager/log_configs.py gives those to each log. A value
that does not fit this node is logged and ignored, as if it had not been set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from kraft.config.key import Update
from kraft.config.keys import LISTENER_PREFIX, PER_LISTENER, TOPIC_KEYS
from kraft.config.node_config import ROWS, Config
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

log = logging.getLogger(__name__)

_OF_TOPICS: Final = frozenset(TOPIC_KEYS.values())


def base_name(key: str) -> str:
    """KEY of listener.name.NAME.KEY; any other key as it is."""
    return key.removeprefix(LISTENER_PREFIX).partition(".")[2] if key.startswith(LISTENER_PREFIX) else key


def changes_node(key: str) -> bool:
    """Whether a committed value of `key` changes the node."""
    base = base_name(key)
    if base in PER_LISTENER:
        return base != key
    return key in ROWS and key not in _OF_TOPICS and ROWS[key].rule.update is not Update.READ_ONLY


class DynamicBrokerConfig:
    """The configuration of one node, as its keys change."""

    def __init__(self, static: Config, apply: Callable[[Config], None]) -> None:
        """`static`: server.properties. `apply` is called with each new configuration."""
        self._static = static
        self._apply = apply

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply what the delta changes for all brokers or for this one."""
        own = str(self._static.node_id)
        kind = int(ResourceType.BROKER)
        if (kind, "") in delta.changed_configs or (kind, own) in delta.changed_configs:
            self._apply(self._with({**image.config(kind, ""), **image.config(kind, own)}))

    def _with(self, committed: Mapping[str, str]) -> Config:
        """Where they do not fit together, as many as do, one after the other: one stops no other, and none
        the node, for two may contradict each other that each fit the file."""
        changing = {key: value for key, value in committed.items() if changes_node(key)}
        with suppress(FatalError):
            return self._static.with_dynamic(changing)
        fitting, config = dict[str, str](), self._static
        for key, value in changing.items():
            try:
                config = self._static.with_dynamic({**fitting, key: value})
                fitting[key] = value
            except FatalError as error:
                log.error("%s is not in effect on this node: %s", key, error)
        return config
