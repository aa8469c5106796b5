"""What is set for all brokers at once, with our own client: librdkafka refuses a resource without a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kraft.cli.confluent_client import first_address
from kraft.peers.blocking_client import ask
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType

_SET: Final = 0
_DELETE: Final = 1


class Entry(NamedTuple):
    """A configuration, with the names of librdkafka's."""

    value: str | None
    source: int
    is_read_only: bool


def entries(bootstrap: str) -> dict[str, Entry]:
    """By key."""
    resource = {"resource_type": int(ResourceType.BROKER), "resource_name": "", "configuration_keys": None}
    answer = ask(*first_address(bootstrap), ApiKey.DESCRIBE_CONFIGS, (1, 4), {"resources": [resource]})
    (result,) = answer.results
    _raise_for(result)
    return {each.name: Entry(each.value, each.config_source, each.read_only) for each in result.configs}


def change(bootstrap: str, values: Mapping[str, str], deletions: Sequence[str]) -> None:
    """Set some, take others back to their defaults. Raises `BrokerError`."""
    configs: list[dict[str, Any]] = [
        {"name": name, "config_operation": _SET, "value": value} for name, value in values.items()
    ]
    configs += [{"name": name, "config_operation": _DELETE, "value": None} for name in deletions]
    resource = {"resource_type": int(ResourceType.BROKER), "resource_name": "", "configs": configs}
    fields = {"resources": [resource], "validate_only": False}
    answer = ask(*first_address(bootstrap), ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), fields)
    _raise_for(answer.responses[0])


def _raise_for(result: Any) -> None:
    if result.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(result.error_code), result.error_message or "")
