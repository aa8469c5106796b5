"""A node's configuration: server.properties in, one typed and checked object out.

    text --parse_properties--> {key: text} --Config.from_properties--> Config (typed attributes)

The rows (name, type, default, bounds, why) are in the tables of `keys.py`. An unknown key is logged as a
warning that names the nearest known one. A wrong value, or values that do not fit together, end the
process with one sentence: the key, the value, the bound.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import socket
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple, NoReturn

from kraft.config.key import HOUR, MINUTE, KeyRule, Required
from kraft.config.keys import LISTENER_PREFIX, NO_EFFECT, TOPIC_KEYS, ConfigKeys
from kraft.config.properties import parse_properties
from kraft.config.unread_keys import warn_of_listeners, warn_unknown
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import Endpoint, SecurityProtocol

logger = logging.getLogger(__name__)

RAFT_DIR: Final = "raft"
"""No partition's directory has that name: those end in a number."""
_EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")


class NodeAddress(NamedTuple):
    """Another node, and where one of its listeners is."""

    node_id: int
    host: str
    port: int


class ConfigRow(NamedTuple):
    """A key as DescribeConfigs and docs/CONFIG.md show it."""

    name: str
    attribute: str
    type: str
    """Kafka's word: int, long, short, boolean, double, string, list."""
    default: object
    rule: KeyRule


def reject(key: str, value: object, bound: str) -> NoReturn:
    """Raises FatalError(BAD_CONFIG): the key, its value, and what it should have been."""
    raise FatalError(ExitCode.BAD_CONFIG, f"{key}={value}: {bound}")


@dataclass(repr=False, eq=False, frozen=True, kw_only=True, slots=False)
class Config(ConfigKeys):
    """A checked configuration. Attributes are Kafka's keys with underscores for dots."""

    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What was set explicitly, by key; everything else holds its default."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Config:
        """Parse and check. Raises FatalError(BAD_CONFIG)."""
        values: dict[str, Any] = {}
        for name, text in properties.items():
            row = ROWS.get(name)
            if row is not None:
                values[row.attribute] = parse_value(row, text)
            elif not _is_for_listener(name) and name not in NO_EFFECT:
                warn_unknown(name, _READ)
        for row in ROWS.values():
            if row.default is Required.TOKEN and row.attribute not in values:
                raise FatalError(ExitCode.BAD_CONFIG, f"{row.name} is not set: {row.rule.why}")
        given = {k: v for k, v in properties.items() if k in ROWS or k in NO_EFFECT or _is_for_listener(k)}
        config = cls(**values, given=given)
        _check(config)
        return config

    @classmethod
    def load(cls, path: str, overrides: Mapping[str, str] | None = None) -> Config:
        """Read a server.properties file; `overrides` take precedence. Raises FatalError(BAD_CONFIG)."""
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise FatalError(ExitCode.BAD_CONFIG, f"cannot read {path}: {_reason(error)}") from None
        config = cls.from_properties(parse_properties(text) | dict(overrides or {}))
        warn_of_listeners(config.given, config.listener_names, _READ)
        return config

    def with_dynamic(self, overrides: Mapping[str, str]) -> Config:
        """The same node with values of its broker resource. Raises FatalError(BAD_CONFIG)."""
        return Config.from_properties({**self.given, **overrides})

    # -- derived ----------------------------------------------------------------------------------

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @cached_property
    def voters(self) -> tuple[NodeAddress, ...]:
        """The quorum's controllers by id, at the addresses at which this node reaches their controller
        listeners. Nodes need not agree on the addresses."""
        return tuple(sorted(_parse_nodes("controller.quorum.voters", self.controller_quorum_voters)))

    @cached_property
    def quorum_entries(self) -> tuple[NodeAddress, ...]:
        """Whom a node asks for the quorum's leader: the voters, or where they are not known the bootstrap
        servers, numbered as Kafka's clients do it, downward from -2."""
        servers = enumerate(self.controller_quorum_bootstrap_servers)
        addresses = (
            _parse_address("controller.quorum.bootstrap.servers", number, each) for number, each in servers
        )
        return self.voters or tuple(addresses)

    @cached_property
    def peer_addresses(self) -> dict[int, NodeAddress]:
        """Addresses of brokers that this node reaches elsewhere than they have registered, by broker id."""
        return {
            peer.node_id: peer for peer in _parse_nodes("kraft.peer.addresses", self.kraft_peer_addresses)
        }

    @cached_property
    def data_dirs(self) -> tuple[str, ...]:
        """Where partitions live: log.dirs, else log.dir. /a/ is spelled /a, as Java does it."""
        paths = self.log_dirs or ((self.log_dir,) if self.log_dir else ())
        return tuple(str(PurePosixPath(each)) for each in paths)

    @cached_property
    def connections_of_hosts(self) -> dict[str, int]:
        """max.connections.per.ip.overrides: the most of each address, or host's name."""
        key, counts = "max.connections.per.ip.overrides", dict[str, int]()
        for item in _items(self.max_connections_per_ip_overrides):
            host, colon, count = item.rpartition(":")
            if not (host and colon and re.fullmatch("[0-9]{1,9}", count)):
                reject(key, item, "each is ADDRESS:COUNT")
            counts[host.strip("[]")] = int(count)
        return counts

    @property
    def metadata_dir(self) -> str:
        """Directory of the metadata log, Raft's journal and votes."""
        return str(PurePosixPath(self.metadata_log_dir)) if self.metadata_log_dir else self.data_dirs[0]

    @property
    def raft_dir(self) -> str:
        """Directory of Raft's journal and votes."""
        return f"{self.metadata_dir}/{RAFT_DIR}"

    @cached_property
    def bound_listeners(self) -> tuple[Endpoint, ...]:
        """What this node binds; an empty host means every interface."""
        return _parse_listeners("listeners", self.listeners, self._protocols)

    @cached_property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.bound_listeners if e.name not in self.controller_listener_names)

    @cached_property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.bound_listeners if e.name in self.controller_listener_names)

    @cached_property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """What is registered for clients and other brokers: advertised.listeners, else the listeners
        with this machine's name in place of an empty host."""
        if self.advertised_listeners:
            return _parse_listeners("advertised.listeners", self.advertised_listeners, self._protocols)
        return tuple(
            dataclasses.replace(e, host=e.host or socket.gethostname()) for e in self.broker_listeners
        )

    @cached_property
    def controller_endpoints(self) -> tuple[Endpoint, ...]:
        """What is registered of a controller: its listeners, in place of every interface with the host by
        which the other voters know it."""
        hosts = {voter.node_id: voter.host for voter in self.voters}
        return tuple(
            dataclasses.replace(e, host=hosts[self.node_id] if e.host in _EVERY_INTERFACE else e.host)
            for e in self.controller_listeners
        )

    @cached_property
    def inter_broker_listener(self) -> str:
        """The name of the listener over which brokers fetch from each other."""
        if self.inter_broker_listener_name:
            return self.inter_broker_listener_name
        for endpoint in self.broker_listeners:
            if SecurityProtocol(endpoint.security_protocol).name == self.security_inter_broker_protocol:
                return endpoint.name
        return self.security_inter_broker_protocol

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """The security protocol of a listener, on any node."""
        return self._protocols.get(listener, SecurityProtocol.PLAINTEXT)

    @property
    def listener_names(self) -> tuple[str, ...]:
        """Of this node's, and of all that it knows how to connect to."""
        return (*self._protocols, *self.controller_listener_names, *(e.name for e in self.bound_listeners))

    @cached_property
    def _protocols(self) -> dict[str, SecurityProtocol]:
        """The security protocols by listener name."""
        protocols: dict[str, SecurityProtocol] = {}
        for item in _items(self.listener_security_protocol_map):
            name, colon, protocol = item.partition(":")
            if not colon or protocol.upper() not in SecurityProtocol.__members__:
                known = ", ".join(SecurityProtocol.__members__)
                reject("listener.security.protocol.map", item, f"each part is NAME:PROTOCOL of {known}")
            protocols[name.strip()] = SecurityProtocol[protocol.strip().upper()]
        if "listener.security.protocol.map" not in self.given:
            # As in Kafka: the controllers' listener is PLAINTEXT unless the map says otherwise.
            for name in self.controller_listener_names:
                protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
        return protocols

    @cached_property
    def topic_defaults(self) -> dict[str, str]:
        """Every topic key, with the value that applies on this broker to a topic that has none of its own."""
        defaults = {
            name: format_value(getattr(self, _attribute(ROWS[b].name))) for name, b in TOPIC_KEYS.items()
        }
        defaults["retention.ms"] = str(self._retention_ms)
        defaults["segment.ms"] = str(self.log_roll_ms or self.log_roll_hours * HOUR)
        jitter = self.log_roll_jitter_ms
        defaults["segment.jitter.ms"] = str(self.log_roll_jitter_hours * HOUR if jitter is None else jitter)
        if self.log_flush_interval_ms is None:
            defaults["flush.ms"] = str(2**63 - 1)
        return defaults

    @property
    def _retention_ms(self) -> int:
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return -1 if self.log_retention_minutes < 0 else self.log_retention_minutes * MINUTE
        return -1 if self.log_retention_hours < 0 else self.log_retention_hours * HOUR

    def value_text(self, name: str) -> str:
        """A key's value as server.properties would write it."""
        return format_value(getattr(self, ROWS[name].attribute))


# -- values ---------------------------------------------------------------------------------------


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def format_value(value: object) -> str:
    """A typed value as text."""
    if value is None or value is Required.TOKEN:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def parse_value(row: ConfigRow, text: str) -> object:
    """Text as the row's type. Raises FatalError(BAD_CONFIG) for another type, or outside the bounds."""
    text = text.strip()
    if row.type == "boolean":
        if text.lower() not in ("true", "false"):
            reject(row.name, text, "must be true or false")
        return text.lower() == "true"
    if row.type == "list":
        parts = tuple(_items(text))
        for part in parts:
            _check_choice(row, part)
        return parts
    if row.type == "string":
        _check_choice(row, text)
        return text or None if row.default is None else text
    return _number(row, text)


def _number(row: ConfigRow, text: str) -> float:
    number: float
    bits = None if row.type == "double" else row.rule.bits
    try:
        if "_" in text:  # Python's own notation, not Kafka's
            raise ValueError
        number = float(text) if bits is None else int(text)
    except ValueError:
        reject(row.name, text, "must be a number" if bits is None else "must be a whole number")
    if bits is not None and not -(1 << bits - 1) <= number < 1 << bits - 1:
        reject(row.name, text, f"must be a number of {bits} bits")
    if number == row.rule.never:
        reject(row.name, text, f"must not be {row.rule.never:g}")
    low, high = row.rule.minimum, row.rule.maximum
    if low is not None and number < low:
        reject(row.name, text, f"must be at least {low:g}" if low < 1e6 else f"must be at least {int(low)}")
    if high is not None and number > high:
        reject(row.name, text, f"must be at most {high:g}")
    return number


def _check_choice(row: ConfigRow, text: str) -> None:
    if row.rule.choices and text not in row.rule.choices:
        reject(row.name, text, f"must be one of {', '.join(row.rule.choices)}")


def _items(text: str) -> Iterator[str]:
    return (part.strip() for part in text.split(",") if part.strip())


def _parse_nodes(key: str, text: str) -> Iterator[NodeAddress]:
    seen = set[int]()
    for item in _items(text):
        node, at, address = item.partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and node.isdecimal() and port.isdecimal() and 0 < int(port) < 65536):
            reject(key, item, "each node is ID@HOST:PORT")
        if int(node) in seen:
            reject(key, text, f"node {int(node)} is named twice")
        seen.add(int(node))
        yield NodeAddress(int(node), host.strip("[]"), int(port))


def _parse_address(key: str, number: int, text: str) -> NodeAddress:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        reject(key, text, "each server is HOST:PORT")
    return NodeAddress(-2 - number, host.strip("[]"), int(port))


def _parse_listeners(key: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> tuple[Endpoint, ...]:
    found: list[Endpoint] = []
    for item in _items(text):
        name, separator, address = item.partition("://")
        host, colon, port = address.rpartition(":")
        if not (name and separator and colon and port.isdecimal() and int(port) < 65536):
            reject(key, item, "each listener is NAME://HOST:PORT")
        if name not in protocols:
            reject(key, item, f"listener.security.protocol.map does not say how {name} speaks")
        found.append(Endpoint(name, host.strip("[]"), int(port), protocols[name]))
    for what, seen in (("name", [e.name for e in found]), ("port", [e.port for e in found if e.port])):
        if key == "listeners" and len(set(seen)) < len(seen):
            reject(key, text, f"each listener needs a {what} of its own")
    return tuple(found)


# -- what must fit together -----------------------------------------------------------------------


def _check(config: Config) -> None:
    _check_roles(config)
    _check_voters(config)
    _check_listeners(config)
    if config.node_id in config.peer_addresses:
        reject("kraft.peer.addresses", config.kraft_peer_addresses, "names this node itself")
    if not config.data_dirs:
        raise FatalError(ExitCode.BAD_CONFIG, "log.dirs is not set: directories for partitions")
    if len(set(config.data_dirs)) < len(config.data_dirs):
        reject("log.dirs", config.value_text("log.dirs"), "names a directory twice")
    pairs = (
        (
            "replica.fetch.wait.max.ms",
            "replica.lag.time.max.ms",
            "a waiting follower would look like a lagging one",
        ),
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "no fetch would be waited for to its end"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", "they contradict"),
        ("broker.heartbeat.interval.ms", "broker.session.timeout.ms", "a healthy broker would be fenced"),
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms", "no session would be allowed"),
        *(
            (f"group.consumer.{lower}.ms", f"group.consumer.{upper}.ms", why)
            for lower, upper, why in (
                ("min.session.timeout", "session.timeout", "the default is out of bounds"),
                ("session.timeout", "max.session.timeout", "the default is out of bounds"),
                ("min.heartbeat.interval", "heartbeat.interval", "the default is out of bounds"),
                ("heartbeat.interval", "max.heartbeat.interval", "the default is out of bounds"),
                ("heartbeat.interval", "session.timeout", "a healthy member would be out"),
            )
        ),
    )
    for lower, upper, why in pairs:
        if getattr(config, _attribute(lower)) > getattr(config, _attribute(upper)):
            reject(
                lower,
                config.value_text(lower),
                f"must not be above {upper}={config.value_text(upper)}: {why}",
            )

    if not (config.connections_of_hosts or config.max_connections_per_ip):
        key = "max.connections.per.ip"
        reject(key, 0, f"nobody could connect; may be 0 only beside {key}.overrides")
    if "classic" not in config.group_coordinator_rebalance_protocols:
        key = "group.coordinator.rebalance.protocols"
        reject(key, config.value_text(key), "must name classic: groups cannot do without")


def _check_roles(config: Config) -> None:
    roles = config.process_roles
    if not roles or len(set(roles)) < len(roles):
        reject("process.roles", ",".join(roles), "name broker, controller or both, each once")


def _check_voters(config: Config) -> None:
    text = config.controller_quorum_voters
    ids = [voter.node_id for voter in config.voters]
    if not ids and (config.is_controller or not config.quorum_entries):
        raise FatalError(
            ExitCode.BAD_CONFIG, "controller.quorum.voters is not set: ID@HOST:PORT,... of every controller"
        )
    if config.is_controller and config.node_id not in ids:
        reject(
            "controller.quorum.voters",
            text,
            f"must name node.id={config.node_id}, because it is a controller",
        )
    if not config.is_controller and config.node_id in ids:
        reject("controller.quorum.voters", text, f"names node.id={config.node_id}, which is not a controller")


def _check_listeners(config: Config) -> None:
    names = config.controller_listener_names
    if not names:
        raise FatalError(
            ExitCode.BAD_CONFIG, "controller.listener.names is not set: the listeners of the controllers"
        )
    if config.is_controller and not config.controller_listeners:
        key = "controller.listener.names"
        reject("listeners", config.listeners, f"a controller must listen on {names[0]} ({key})")
    if not config.is_controller and config.controller_listeners:
        name = config.controller_listeners[0].name
        reject("listeners", config.listeners, f"only a controller listens on {name}")
    if not config.is_broker:
        return
    if not config.broker_listeners:
        reject("listeners", config.listeners, "a broker needs a listener that is not the controllers'")
    advertised = config.advertised_listeners
    if advertised:
        for endpoint in config.advertised_endpoints:
            if endpoint.host in _EVERY_INTERFACE or endpoint.port == 0:
                reject("advertised.listeners", advertised, "clients cannot connect to such an address")
    if config.inter_broker_listener in names:
        reject(
            "inter.broker.listener.name",
            config.inter_broker_listener,
            "must not be the controllers' listener",
        )
    if config.inter_broker_listener not in {e.name for e in config.advertised_endpoints}:
        reject(
            "inter.broker.listener.name", config.inter_broker_listener, "is not among the broker's listeners"
        )


def _is_for_listener(name: str) -> bool:
    """listener.name.NAME.KEY: a key for one listener; node/listener_keys.py reads them."""
    return name.startswith(LISTENER_PREFIX)


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"


# -- the table, read once ---------------------------------------------------------------------------

_TYPE_WORDS: Final[dict[object, str]] = {bool: "boolean", float: "double", str: "string", tuple: "list"}
_WHOLE_NUMBERS: Final = {16: "short", 32: "int", 64: "long"}
"""By their bits."""


def _read_rows() -> dict[str, ConfigRow]:
    hints = typing.get_type_hints(ConfigKeys)
    rows: dict[str, ConfigRow] = {}
    for field in dataclasses.fields(ConfigKeys):
        hint = hints[field.name]
        if isinstance(hint, types.UnionType):
            hint = next(t for t in typing.get_args(hint) if t is not type(None))
        rule: KeyRule = field.metadata["rule"]
        word = _WHOLE_NUMBERS[rule.bits] if hint is int else _TYPE_WORDS[typing.get_origin(hint) or hint]
        name = field.name.replace("_", ".")
        rows[name] = ConfigRow(name, field.name, word, field.default, rule)
    return rows


ROWS: Final = _read_rows()
"""Every key, in the order of the table."""

_READ: Final = (*ROWS, *NO_EFFECT)
