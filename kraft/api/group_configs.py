"""A group's own settings, within the bounds that this broker's configuration sets for all groups.

That the values are numbers is checked in apply; the bounds come from a node's server.properties, so the
active controller's node checks them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from data_plane.coordinator.groups.consumer.rules import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from kraft.config.node_config import Config
from metadata_quorum.foundation.topic_configs import GROUP_CONFIGS

_BOUNDED: Final = (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)


def group_default(key: str, config: Config) -> str | None:
    """What holds for a group without a value of its own; None where no broker's key says it."""
    if key not in _BOUNDED:
        return None
    return str(getattr(config, f"group_{key.replace('.', '_')}"))


def group_config_problem(values: Mapping[str, str], config: Config) -> str | None:
    """The first thing wrong with all values of a group together, in Kafka's words."""
    return next(_problems(values, config), None)


def _problems(values: Mapping[str, str], config: Config) -> Iterator[str]:
    effective: dict[str, int] = {}
    for key in _BOUNDED:
        text = values.get(key) or group_default(key, config) or ""
        if GROUP_CONFIGS[key].problem(text):
            return  # no int32, as the controller will say
        value = effective[key] = int(text)
        if key not in values:
            continue
        for bound, breaks, word in (
            ("min", int.__lt__, "greater than or equal to"),
            ("max", int.__gt__, "less than or equal to"),
        ):
            name = key.replace("consumer.", f"group.consumer.{bound}.")
            if breaks(value, getattr(config, name.replace(".", "_"))):
                yield f"{key} must be {word} {name}"
    if effective[SESSION_TIMEOUT] <= effective[HEARTBEAT_INTERVAL]:
        yield f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}"
