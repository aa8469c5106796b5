"""Configurations of topics, brokers and groups, for `kraft config` and `kraft topic`.

A named broker is asked itself, everything else any broker. It uses our own client: librdkafka refuses a
resource without a name, which is all brokers', and waits for a broker of its own choice where nodes are dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kraft.cli.bootstrap import Address, any_broker
from kraft.cli.errors import CliError
from kraft.cli.wire_client import broker_address, request
from kraft.wire.api_keys import ApiKey
from kraft.wire.malformed import only
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType

_SET: Final = 0
_DELETE: Final = 1

KINDS: Final = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}

SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Kafka's names (ConfigEntry.ConfigSource)."""

OWN_SOURCES: Final = {
    "topic": ("DYNAMIC_TOPIC_CONFIG",),
    "broker": ("DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    "group": ("DYNAMIC_GROUP_CONFIG",),
}
"""Sources of values that were set on the resource and not inherited."""


class Entry(NamedTuple):
    """A configuration's value."""

    value: str | None
    source: str
    is_read_only: bool


def entries_of(bootstrap: str, kind: str, name: str) -> dict[str, Entry]:
    """Every configuration of a resource, by key. Raises `BrokerError`."""
    resource = {"resource_type": int(KINDS[kind]), "resource_name": name, "configuration_keys": None}
    answer = request(
        _keeper(bootstrap, kind, name), ApiKey.DESCRIBE_CONFIGS, (1, 4), {"resources": [resource]}
    )
    result = only(answer.results)
    _raise_for(result, name)
    return {
        each.name: Entry(each.value, SOURCES.get(each.config_source, "UNKNOWN"), each.read_only)
        for each in result.configs
    }


def overrides_of(bootstrap: str, kind: str, name: str) -> dict[str, str]:
    """Only what was set on the resource itself."""
    return {
        key: entry.value or ""
        for key, entry in sorted(entries_of(bootstrap, kind, name).items())
        if entry.source in OWN_SOURCES[kind]
    }


def change(
    bootstrap: str, kind: str, name: str, values: Mapping[str, str], deletions: Sequence[str] = ()
) -> None:
    """IncrementalAlterConfigs: set some, take others back to their defaults. Raises `BrokerError`."""
    configs: list[dict[str, Any]] = [
        {"name": key, "config_operation": _SET, "value": value} for key, value in values.items()
    ]
    configs += [{"name": key, "config_operation": _DELETE, "value": None} for key in deletions]
    resource = {"resource_type": int(KINDS[kind]), "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": False}
    address = _taker(bootstrap, kind, name)
    answer = request(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), fields)
    _raise_for(only(answer.responses), name)


def _keeper(bootstrap: str, kind: str, name: str) -> Address:
    """Who knows it: only a broker itself knows what its own server.properties say."""
    return broker_address(bootstrap, name) if kind == "broker" and name else any_broker(bootstrap)


def _taker(bootstrap: str, kind: str, name: str) -> Address:
    """Who takes a change of it: of a controller that is no broker, any broker."""
    try:
        return _keeper(bootstrap, kind, name)
    except CliError:
        if kind != "broker" or name not in _controllers(bootstrap):
            raise
        return any_broker(bootstrap)


def _controllers(bootstrap: str) -> list[str]:
    """Ids, as far as we may know."""
    from kraft.peers.blocking_client import QUORUM_FIELDS, QUORUM_VERSIONS

    answer = request(any_broker(bootstrap), ApiKey.DESCRIBE_QUORUM, QUORUM_VERSIONS, QUORUM_FIELDS)
    if answer.error_code != ErrorCode.NONE:
        return []
    return [str(each.replica_id) for each in only(only(answer.topics).partitions).current_voters]


def _raise_for(result: Any, name: str) -> None:
    if result.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(result.error_code), result.error_message or name)
