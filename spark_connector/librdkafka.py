"""Java's client properties in the words of librdkafka, which writes for the sink.

    producer_config({"bootstrap.servers": ..., "sasl.jaas.config": ...}) -> configuration of a Producer

People bring the properties that Spark's own Kafka sink took, so these are Java's names and values; those of
librdkafka are passed on as they are. What would weaken security if it were left out is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from spark_connector.errors import OptionError
from spark_connector.options import CLIENT_PREFIX

Config: TypeAlias = dict[str, str | int | float | bool]

DEFAULTS: Final[Config] = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # Java's: equal keys go where Spark's sink would put them
    "linger.ms": 5,  # Java's since Kafka 4
    "queue.buffering.max.messages": 1_000_000,
    "log.connection.close": False,
}
DEFAULT_BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Java's `buffer.memory`. Left to itself librdkafka holds a GiB for each producer."""
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_000_000
"""librdkafka's `message.max.bytes`."""

_MOST_BUFFER_KIB: Final = 2**31 - 1
_MOST_IN_FLIGHT: Final = 5
_HIGHEST_LEVEL: Final = 12
"""Of compression, to librdkafka; Java's goes up to 22."""
_CODECS: Final = ("gzip", "lz4", "zstd")
_OLDEST_TLS: Final = "TLSv1.2"
_OF_THE_SYSTEM: Final = "-1"
"""Where librdkafka writes 0: the system's own size of a socket's buffer, and idle connections that stay."""

RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
LEFT_OUT: Final = frozenset(
    {
        # the consumer's: one set of options often serves both source and sink
        "group.id", "group.instance.id", "group.protocol", "isolation.level", "max.poll.records",
        "max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms", "fetch.min.bytes",
        "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "default.api.timeout.ms",
        "check.crcs", "exclude.internal.topics", "allow.auto.create.topics", "client.rack",
        "key.deserializer", "value.deserializer",
        # Java's own
        "max.block.ms", "auto.include.jmx.reporter", "metric.reporters", "metadata.max.idle.ms",
        "socket.connection.setup.timeout.max.ms", "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
        "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "security.providers",
        "ssl.provider", "ssl.protocol", "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "partitioner.ignore.keys",
        "partitioner.availability.timeout.ms", "partitioner.adaptive.partitioning.enable",
    }
)  # fmt: skip
_REFUSED: Final = {
    "sasl.login.callback.handler.class": "names a Java class",
    "sasl.client.callback.handler.class": "names a Java class",
    "sasl.login.class": "names a Java class",
    "ssl.engine.factory.class": "names a Java class",
    "config.providers": "names Java classes",
    "partitioner.class": "names a Java class; set the column 'partition' instead",
}
_TO_PEM: Final = {
    "ssl.truststore": "keytool -list -rfc -keystore STORE > ca.pem",
    "ssl.keystore": "keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12"
    " -deststoretype PKCS12; openssl pkcs12 -in STORE.p12 -out client.pem",
}
_STORE_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")

_LOGIN_MODULE: Final = re.compile(r"\s*([\w.]+)\s+\w+\s*(.*?);?\s*", re.S)
_LOGIN_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_USER_LOGINS: Final = ("PlainLoginModule", "ScramLoginModule")


def producer_config(properties: Mapping[str, str]) -> Config:
    """Raises `OptionError`."""
    config: Config = dict(DEFAULTS)
    for key, value in properties.items():
        if key in _REFUSED:
            raise _refused(key, f"is not supported: it {_REFUSED[key]}")
        if key in SPECIAL:
            config |= SPECIAL[key](value, properties)
        elif key not in LEFT_OUT and key not in _STORE_TYPES:
            config[RENAMED.get(key, key)] = value
    if "enable.idempotence" not in properties and not _may_be_idempotent(properties):
        config["enable.idempotence"] = False  # as Java's
    if "queue.buffering.max.kbytes" not in properties:
        config["queue.buffering.max.kbytes"] = _buffer_kib(properties, config)
    return config


def _may_be_idempotent(properties: Mapping[str, str]) -> bool:
    """Not with less than acks=all, without retries, or with more requests in flight than brokers
    remember."""
    in_flight = properties.get("max.in.flight.requests.per.connection", "1").strip()
    return (
        properties.get("acks", "all").strip() in ("all", "-1")
        and properties.get("retries", "1").strip() != "0"
        and not (in_flight.isdecimal() and int(in_flight) > _MOST_IN_FLIGHT)
    )


def _buffer_kib(properties: Mapping[str, str], config: Config) -> int:
    """What waits to be sent or acknowledged. The largest message must fit, or it would wait for ever."""
    given = properties.get("buffer.memory", str(DEFAULT_BUFFER_BYTES)).strip()
    largest = str(config.get("message.max.bytes", DEFAULT_MAX_MESSAGE_BYTES)).strip()
    if not given.isdecimal() or int(given) == 0:
        raise _refused("buffer.memory", f"is a number of bytes, not {given!r}")
    sizes = [int(each) for each in (given, largest) if each.isdecimal()]  # librdkafka reports what is wrong
    return min(-(-max(sizes) // 1024) + 1, _MOST_BUFFER_KIB)


def _refused(key: str, problem: str) -> OptionError:
    return OptionError(CLIENT_PREFIX + key, problem)


# ---- properties that are not merely renamed ------------------------------------------------------------


def _login(value: str, _: Mapping[str, str]) -> Config:
    """`sasl.jaas.config`: user and password of the two login modules that have them."""
    found = _LOGIN_MODULE.fullmatch(value)
    if found is None or found[1].rpartition(".")[2] not in _USER_LOGINS:
        raise _refused("sasl.jaas.config", f"is understood for {' and '.join(_USER_LOGINS)} only")
    options = {
        match[1]: re.sub(r"\\(.)", r"\1", match[2] or match[3] or "") or match[4] or ""
        for match in _LOGIN_OPTION.finditer(found[2])
    }
    if not {"username", "password"} <= options.keys():
        raise _refused("sasl.jaas.config", "names no username and password")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _truststore(value: str, properties: Mapping[str, str]) -> Config:
    _require_pem("ssl.truststore", value, properties, ("PEM",))
    return {"ssl.ca.location": value}


def _keystore(value: str, properties: Mapping[str, str]) -> Config:
    if _require_pem("ssl.keystore", value, properties, ("PEM", "PKCS12")) == "PKCS12":
        return {"ssl.keystore.location": value}
    return {"ssl.certificate.location": value, "ssl.key.location": value}


def _require_pem(store: str, path: str, properties: Mapping[str, str], types: tuple[str, ...]) -> str:
    """The type of a store, which must be one that is read without Java."""
    by_name = "PKCS12" if path.endswith((".p12", ".pfx")) else "JKS"
    kind = properties.get(f"{store}.type", by_name).upper()
    if kind not in types:
        raise _refused(
            f"{store}.location",
            f"is a {kind} store, which only Java reads: convert it ({_TO_PEM[store]}), and set"
            f" '{CLIENT_PREFIX}{store}.type' to {' or '.join(types)}",
        )
    return kind


def _host_check(value: str, _: Mapping[str, str]) -> Config:
    return {"ssl.endpoint.identification.algorithm": value.strip() or "none"}


def _protocols(value: str, _: Mapping[str, str]) -> Config:
    """TLS 1.2 and newer are spoken, whatever is listed; so what forbids 1.2 is refused."""
    if _OLDEST_TLS not in (each.strip() for each in value.split(",")):
        raise _refused("ssl.enabled.protocols", f"must have {_OLDEST_TLS}, which is spoken as well")
    return {}


def _truststore_password(_: str, __: Mapping[str, str]) -> Config:
    return {}  # a PEM file of certificates has none


def _buffer_memory(_: str, __: Mapping[str, str]) -> Config:
    return {}  # set together with the largest message


def _level_of(codec: str) -> Callable[[str, Mapping[str, str]], Config]:
    """Java has a level for each codec, of which one is used."""

    def level(value: str, properties: Mapping[str, str]) -> Config:
        if properties.get("compression.type", "").strip().lower() != codec:
            return {}
        given = value.strip()
        return {"compression.level": min(int(given), _HIGHEST_LEVEL) if given.isdecimal() else given}

    return level


def _zero_where_unset(name: str) -> Callable[[str, Mapping[str, str]], Config]:
    return lambda value, _: {name: "0" if value.strip() == _OF_THE_SYSTEM else value}


SPECIAL: Final[Mapping[str, Callable[[str, Mapping[str, str]], Config]]] = {
    **{f"compression.{codec}.level": _level_of(codec) for codec in _CODECS},
    "connections.max.idle.ms": _zero_where_unset("connections.max.idle.ms"),
    "receive.buffer.bytes": _zero_where_unset("socket.receive.buffer.bytes"),
    "send.buffer.bytes": _zero_where_unset("socket.send.buffer.bytes"),
    "buffer.memory": _buffer_memory,
    "sasl.jaas.config": _login,
    "ssl.truststore.location": _truststore,
    "ssl.truststore.password": _truststore_password,
    "ssl.keystore.location": _keystore,
    "ssl.enabled.protocols": _protocols,
    "ssl.endpoint.identification.algorithm": _host_check,
}
