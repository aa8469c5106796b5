"""Configurations of topics and brokers through the admin client, for `kraft config` and `kraft topic`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kraft.cli.confluent_client import wait

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConfigResource

OWN_SOURCES = {
    "topic": ("DYNAMIC_TOPIC_CONFIG",),
    "broker": ("DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    "group": ("GROUP_CONFIG",),
}
"""Sources of values that were set on the resource and not inherited; Kafka's names."""


def _resource(kind: str, name: str, entries: Sequence[Any] = ()) -> ConfigResource:
    from confluent_kafka.admin import ConfigResource, ResourceType

    types = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}
    return ConfigResource(types[kind], name, incremental_configs=list(entries) or None)


def entries_of(admin: AdminClient, kind: str, name: str) -> dict[str, Any]:
    """Every configuration of a resource, by key."""
    resource = _resource(kind, name)
    entries: dict[str, Any] = wait(admin.describe_configs([resource])[resource], name)
    return entries


def source_of(entry: Any) -> str:
    """Kafka's name for the source of a value."""
    from confluent_kafka.admin import ConfigSource

    return ConfigSource(entry.source).name


def overrides_of(admin: AdminClient, kind: str, name: str) -> dict[str, str]:
    """Only what was set on the resource itself."""
    entries = entries_of(admin, kind, name)
    return {
        key: entry.value for key, entry in sorted(entries.items()) if source_of(entry) in OWN_SOURCES[kind]
    }


def change(
    admin: AdminClient, kind: str, name: str, values: Mapping[str, str], deletions: Sequence[str] = ()
) -> None:
    """IncrementalAlterConfigs: set some, take others back to their defaults."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()
    ]
    entries += [ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in deletions]
    resource = _resource(kind, name, entries)
    wait(admin.incremental_alter_configs([resource])[resource], name)
