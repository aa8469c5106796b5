"""What the client's properties mean for our own connections: addresses, timeouts, credentials.

Properties have the names of Java's client, without the prefix `kafka.`; those without meaning here (the
settings of a group or of a producer) are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraft.net.client import Address
from kraft.net.connection_security import MECHANISMS, Login, Tls
from spark_connector.errors import OptionError
from spark_connector.librdkafka import producer_config
from spark_connector.options import DEFAULT_CLIENT_ID

DEFAULT_FETCH_BYTES: Final = 8 * 1024 * 1024
DEFAULT_REQUEST_TIMEOUT_MS: Final = 30_000
DEFAULT_API_TIMEOUT_MS: Final = 60_000
MAX_INT: Final = 2**31 - 1
"""As Java's client has its numbers."""

_HOST_CHECK: Final = "ssl.endpoint.identification.algorithm"
_NOT_HEEDED_BY_THE_SOURCE: Final = frozenset(
    {
        "ssl.ca.certificate.stores", "ssl.cipher.suites", "ssl.crl.location", "ssl.curves.list",
        "ssl.engine.id", "ssl.engine.location", "ssl.providers", "ssl.sigalgs.list",
    }
)  # fmt: skip
"""Of librdkafka's. Ignored, they would leave a connection less secure than it was meant to be."""
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """One cluster, and how to connect to it."""

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_s: float
    """For one response."""
    api_timeout_s: float
    """For one request with all its retries."""
    fetch_bytes: int
    check_crc: bool
    read_committed: bool
    rack: str = ""
    """The rack of this client; a leader may send it to a replica in the same rack (KIP-392)."""
    tls: Tls | None = None
    login: Login | None = None


def client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """From the client's properties. Raises `OptionError`."""
    tls, login = _security(properties)
    return ClientSettings(
        bootstrap=_addresses(properties.get("bootstrap.servers", "")),
        client_id=properties.get("client.id") or properties.get("group.id") or DEFAULT_CLIENT_ID,
        request_timeout_s=_number(properties, "request.timeout.ms", DEFAULT_REQUEST_TIMEOUT_MS) / 1000,
        api_timeout_s=_number(properties, "default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS) / 1000,
        fetch_bytes=_number(properties, "max.partition.fetch.bytes", DEFAULT_FETCH_BYTES),
        check_crc=properties.get("check.crcs", "true").strip().lower() != "false",
        read_committed=properties.get("isolation.level") == "read_committed",
        rack=properties.get("client.rack", ""),
        tls=tls,
        login=login,
    )


def _addresses(servers: str) -> tuple[Address, ...]:
    addresses = []
    for server in filter(None, (each.strip() for each in servers.split(","))):
        host, _, port = server.rpartition("://")[2].rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise OptionError("kafka.bootstrap.servers", f"'{server}' is not of the form host:port")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise OptionError("kafka.bootstrap.servers", "is missing: host:port,... of some brokers")
    return tuple(addresses)


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, str(default)).strip()
    if not text.isdecimal() or int(text) == 0:
        raise OptionError(f"kafka.{name}", f"'{text}' is no positive whole number")
    if int(text) > MAX_INT:
        raise OptionError(f"kafka.{name}", f"'{text}' is more than {MAX_INT}")
    return int(text)


def _security(properties: Mapping[str, str]) -> tuple[Tls | None, Login | None]:
    """In librdkafka's words, so that source and sink understand the same."""
    given = {
        key: value for key, value in properties.items() if key.startswith(("security.", "ssl.", "sasl."))
    }
    config = {key: str(value) for key, value in producer_config(given).items()}
    protocol = config.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise OptionError("kafka.security.protocol", f"'{protocol}' is none of {', '.join(_PROTOCOLS)}")
    tls = _tls(config) if protocol.endswith("SSL") else None
    return tls, _login(config) if protocol.startswith("SASL") else None


def _tls(config: Mapping[str, str]) -> Tls:
    for name in _NOT_HEEDED_BY_THE_SOURCE & config.keys():
        raise OptionError(f"kafka.{name}", "is heeded by the sink only: leave it out of the source's options")
    if "ssl.keystore.location" in config:
        raise OptionError(
            "kafka.ssl.keystore.location",
            "is a PKCS12 store: convert it to PEM, and set 'kafka.ssl.keystore.type' to PEM",
        )
    return Tls(
        ca_path=config.get("ssl.ca.location"),
        ca_pem=config.get("ssl.ca.pem"),
        certificate_path=config.get("ssl.certificate.location"),
        certificate_pem=config.get("ssl.certificate.pem"),
        key_path=config.get("ssl.key.location"),
        key_pem=config.get("ssl.key.pem"),
        key_password=config.get("ssl.key.password"),
        checks_certificate=config.get("enable.ssl.certificate.verification", "true").lower() != "false",
        checks_host=_checks_host(config.get(_HOST_CHECK, "https")),
    )


def _checks_host(given: str) -> bool:
    algorithm = given.strip().lower()
    if algorithm not in ("https", "none"):
        raise OptionError(f"kafka.{_HOST_CHECK}", f"'{given}' is neither https nor empty")
    return algorithm == "https"


def _login(config: Mapping[str, str]) -> Login:
    mechanism = (config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise OptionError(
            "kafka.sasl.mechanism", f"{mechanism} is not supported; these are: {', '.join(MECHANISMS)}"
        )
    if "sasl.username" not in config or "sasl.password" not in config:
        raise OptionError(
            "kafka.sasl.jaas.config",
            "is missing, with user name and password; or set 'kafka.sasl.username' and 'kafka.sasl.password'",
        )
    return Login(mechanism, config["sasl.username"], config["sasl.password"])
