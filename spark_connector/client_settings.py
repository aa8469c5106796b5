"""What the client's properties mean for our own connections: whom to ask, for how long, as whom.

Properties have the names of Java's client, without the prefix `kafka.`; what is of no meaning here (the
settings of a group or of a producer) is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraft.net.client import Address
from spark_connector.errors import OptionError

DEFAULT_FETCH_BYTES: Final = 8 * 1024 * 1024
DEFAULT_REQUEST_TIMEOUT_MS: Final = 30_000
DEFAULT_API_TIMEOUT_MS: Final = 60_000
DEFAULT_CLIENT_ID: Final = "kraft-spark"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """One cluster, and how it is to be asked."""

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_s: float
    """For one answer."""
    api_timeout_s: float
    """For one question, however often it must be asked."""
    fetch_bytes: int
    check_crc: bool
    read_committed: bool


def client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """Raises `OptionError`."""
    return ClientSettings(
        bootstrap=_addresses(properties.get("bootstrap.servers", "")),
        client_id=properties.get("client.id") or properties.get("group.id") or DEFAULT_CLIENT_ID,
        request_timeout_s=_number(properties, "request.timeout.ms", DEFAULT_REQUEST_TIMEOUT_MS) / 1000,
        api_timeout_s=_number(properties, "default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS) / 1000,
        fetch_bytes=_number(properties, "max.partition.fetch.bytes", DEFAULT_FETCH_BYTES),
        check_crc=properties.get("check.crcs", "true").strip().lower() != "false",
        read_committed=properties.get("isolation.level") == "read_committed",
    )


def _addresses(servers: str) -> tuple[Address, ...]:
    found = []
    for server in filter(None, (each.strip() for each in servers.split(","))):
        host, _, port = server.rpartition("://")[2].rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise OptionError("kafka.bootstrap.servers", f"'{server}' is not of the form host:port")
        found.append(Address(host.strip("[]"), int(port)))
    if not found:
        raise OptionError("kafka.bootstrap.servers", "is missing: host:port,... of some brokers")
    return tuple(found)


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, str(default)).strip()
    if not text.isdecimal() or int(text) == 0:
        raise OptionError(f"kafka.{name}", f"'{text}' is no positive whole number")
    return int(text)
