"""Client metrics subscriptions (KIP-714): what a CLIENT_METRICS resource may hold.

They are stored and described for tools; whether a node receives metrics is its own affair
(kraft/api/telemetry.py). Judged in decisions/configs.py, described by api/configs.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from metadata_quorum.foundation.client_pattern import ClientPattern
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.topic_configs import ConfigKey, ConfigType

INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
METRICS: Final = "metrics"

MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000

CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (
        ConfigKey(INTERVAL_MS, ConfigType.INT, "300000", "Time between two pushes of a client."),
        ConfigKey(MATCH, ConfigType.LIST, "", "Which clients: PROPERTY=PATTERN,...; all have to fit."),
        ConfigKey(METRICS, ConfigType.LIST, "", "Prefixes of the metrics that are asked for."),
    )
}

_PROPERTIES: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""Properties of clients by which a subscription may choose them."""


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Raises `BrokerError` with what is wrong with a subscription, in Kafka's words."""
    for name, value in values.items():
        if name not in CLIENT_METRICS_CONFIGS:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        problem = CLIENT_METRICS_CONFIGS[name].problem(value)
        if problem is not None:
            raise BrokerError(ErrorCode.INVALID_CONFIG, problem)
    interval = values.get(INTERVAL_MS)
    if interval is not None and not MIN_INTERVAL_MS <= int(interval) <= MAX_INTERVAL_MS:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval} for {INTERVAL_MS}, interval must be between {MIN_INTERVAL_MS} and "
            f"{MAX_INTERVAL_MS} (1 hour)",
        )
    for condition in items(values.get(MATCH, "")):
        if not _is_condition(condition):
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {condition}")


def items(value: str) -> list[str]:
    """The items of a list that is written with commas."""
    return [item.strip() for item in value.split(",") if item.strip()]


def matches(value: str, client: Mapping[str, str]) -> bool:
    """Whether a client fits every condition of `match`. `client`: its properties by name, all of them."""
    return all(_pattern_of(condition).matches(client[_name_of(condition)]) for condition in items(value))


def _is_condition(condition: str) -> bool:
    if "=" not in condition or _name_of(condition) not in _PROPERTIES:
        return False
    try:
        _pattern_of(condition)
    except ValueError:
        return False
    return True


def _name_of(condition: str) -> str:
    return condition.partition("=")[0].strip()


def _pattern_of(condition: str) -> ClientPattern:
    """Linear in the text: clients choose what it is matched against. Raises ValueError where it is none."""
    return ClientPattern(condition.partition("=")[2].strip())
