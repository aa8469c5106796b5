"""The options of source and sink: Spark's own names and rules, parsed once into valid values.

    source_options(raw, streaming=True) -> SourceOptions
    sink_options(raw)                   -> SinkOptions

Keys are compared without case, as Spark does. `kafka.NAME` are the client's properties, named as Java's
client names them. An unknown option or property is refused: Spark's own source would silently ignore it.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.client_properties import unknown_property
from spark_connector.errors import OptionError
from spark_connector.offsets import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    Edge,
    Offsets,
    parse_offsets,
    parse_partitions,
)

CLIENT_PREFIX: Final = "kafka."

SOURCE_NAMES: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
)
SINK_NAMES: Final = ("topic", "transactional", "transactionalIdPrefix", "transactionalMarkTopic")
_KNOWN: Final = {name.lower(): name for name in (*SOURCE_NAMES, *SINK_NAMES)}
_OWNED_BY_SPARK: Final = ("checkpointlocation", "queryname", "asyncprogresstracking", "__", "spark.")
"""Beginnings of keys that Spark adds on its own."""

DEFAULT_MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
DEFAULT_POLL_TIMEOUT_MS: Final = 120_000
DEFAULT_FETCH_OFFSET_RETRIES: Final = 3
DEFAULT_FETCH_OFFSET_RETRY_INTERVAL_MS: Final = 1_000
DEFAULT_CLIENT_ID: Final = "kraft-spark"
DEFAULT_TRANSACTIONAL_ID_PREFIX: Final = "kraft-spark"

_SECRET: Final = re.compile(
    r"secret|password|passphrase|token|access[.]?key|credential|sasl\.jaas\.config|keystore\.key|key\.pem",
    re.I,
)
REDACTED: Final = "*********(redacted)"
"""As Spark writes it."""

_UNSUPPORTED_IN_SOURCE: Final = {
    "auto.offset.reset": "Spark keeps the offsets; say where to start with the option 'startingOffsets'",
    "key.deserializer": "keys are bytes; cast the column instead",
    "value.deserializer": "values are bytes; cast the column instead",
    "enable.auto.commit": "Spark keeps the offsets, in its checkpoint",
    "interceptor.classes": "an interceptor could change records",
}
_UNSUPPORTED_IN_SINK: Final = {
    "key.serializer": "keys are written as they are: bytes, or a string in UTF-8",
    "value.serializer": "values are written as they are: bytes, or a string in UTF-8",
    "interceptor.classes": "an interceptor could change records",
    "transactional.id": "each task has its own; set 'transactional' to 'true', and 'transactionalIdPrefix'",
}


class ClientProperties(Mapping[str, str]):
    """The client's properties without their prefix. Looks like a dict, but does not print its secrets."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)

    def __getitem__(self, key: str) -> str:
        return self._properties[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._properties)

    def __len__(self) -> int:
        return len(self._properties)

    def __hash__(self) -> int:
        return hash(frozenset(self._properties.items()))

    def __repr__(self) -> str:
        return repr(redacted(self._properties))


def redacted(options: Mapping[str, str]) -> dict[str, str]:
    """The same with every secret blotted out."""
    return {key: REDACTED if _SECRET.search(key) else value for key, value in options.items()}


# ---- which partitions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics, new ones too."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of all topics in whose name the pattern is found; internal topics are left out."""

    pattern: str

    def matches(self, topic: str) -> bool:
        return re.search(self.pattern, topic) is not None


Topics: TypeAlias = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a source."""

    client: ClientProperties
    topics: Topics
    starting: Bound
    ending: Bound
    """Batch queries only."""
    latest_if_unmatched: bool
    """`startingOffsetsByTimestampStrategy` is 'latest'."""
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    poll_timeout_ms: int
    fetch_offset_retries: int
    fetch_offset_retry_interval_ms: int
    client_id: str
    """What brokers log and quotas count: `kafka.client.id`, else from `kafka.group.id` or `groupIdPrefix`."""

    @property
    def connection(self) -> ClientProperties:
        """What the client is made from."""
        return ClientProperties({**self.client, "client.id": self.client_id})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a sink."""

    client: ClientProperties
    topic: str | None = None
    """For all rows, whatever their column `topic` holds."""
    transactional: bool = False
    transactional_id_prefix: str = DEFAULT_TRANSACTIONAL_ID_PREFIX
    transactional_mark_topic: str | None = None
    checkpoint: str = ""
    """The checkpoint of a stream, if an option sets it."""


def source_options(raw: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Raises `OptionError`."""
    given = _Given(raw)
    options = _source_options(given, Edge.LATEST if streaming else Edge.EARLIEST)
    if streaming:
        _check_streaming(given)
    else:
        _check_batch(options.starting, options.ending)
    return options


def check_source_options(raw: Mapping[str, str]) -> None:
    """What is wrong in a batch query and in a stream. Raises `OptionError`."""
    _source_options(_Given(raw), Edge.EARLIEST)


def _source_options(given: _Given, default_start: Edge) -> SourceOptions:
    client = given.client(_UNSUPPORTED_IN_SOURCE)
    if client.get("isolation.level", "read_committed") not in ("read_committed", "read_uncommitted"):
        raise OptionError("kafka.isolation.level", "is 'read_uncommitted' or 'read_committed'")
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    options = SourceOptions(
        client=client,
        topics=_topics(given),
        starting=given.bound("starting", default_start),
        ending=given.bound("ending", Edge.LATEST),
        latest_if_unmatched=strategy == "latest",
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        max_offsets_per_trigger=given.positive("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.positive("minOffsetsPerTrigger"),
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        min_partitions=given.positive("minPartitions"),
        max_records_per_partition=given.positive("maxRecordsPerPartition"),
        include_headers=given.boolean("includeHeaders", default=False),
        poll_timeout_ms=given.positive("kafkaConsumer.pollTimeoutMs") or DEFAULT_POLL_TIMEOUT_MS,
        fetch_offset_retries=given.positive("fetchOffset.numRetries") or DEFAULT_FETCH_OFFSET_RETRIES,
        fetch_offset_retry_interval_ms=given.not_negative(
            "fetchOffset.retryIntervalMs", DEFAULT_FETCH_OFFSET_RETRY_INTERVAL_MS
        ),
        client_id=client.get("client.id")
        or client.get("group.id")
        or given.get("groupIdPrefix")
        or DEFAULT_CLIENT_ID,
    )
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(
            "minOffsetsPerTrigger", f"{least} is higher than maxOffsetsPerTrigger, which is {most}"
        )
    return options


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Raises `OptionError`."""
    given = _Given(raw)
    topic = given.get("topic")
    if topic == "":
        raise OptionError("topic", "is empty")
    return SinkOptions(
        client=given.client(_UNSUPPORTED_IN_SINK),
        topic=topic,
        transactional=given.boolean("transactional", default=False),
        transactional_id_prefix=given.get("transactionalIdPrefix") or DEFAULT_TRANSACTIONAL_ID_PREFIX,
        transactional_mark_topic=given.get("transactionalMarkTopic") or None,
        checkpoint=given.get("checkpointLocation") or "",
    )


def wants_headers(raw: Mapping[str, str]) -> bool:
    """Whether the source has the column `headers`."""
    return _Given(raw).boolean("includeHeaders", default=False)


# ---- reading values ------------------------------------------------------------------------------------

Value = TypeVar("Value")

_UNITS_MS: Final = {
    "": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)")
MAX_LONG: Final = 2**63 - 1
MAX_TIME_MS: Final = MAX_LONG
MAX_OFFSET: Final = MAX_LONG
_TIMES_EXPECTED: Final = '{"topic":{"0":1700000000000,"1":1700000000000}}, in ms since 1970'


class _Given:
    """What the user wrote, by lower-case key; every key is known."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._values = {key.lower(): value for key, value in raw.items()}
        for key in self._values:
            if not key.startswith((CLIENT_PREFIX, *_OWNED_BY_SPARK)) and key not in _KNOWN:
                near = difflib.get_close_matches(key, _KNOWN, n=1)
                hint = f"; did you mean '{_KNOWN[near[0]]}'?" if near else ""
                raise OptionError(key, f"is unknown to the data source 'kraft'{hint}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def client(self, unsupported: Mapping[str, str]) -> ClientProperties:
        properties = {
            key.removeprefix(CLIENT_PREFIX): value
            for key, value in self._values.items()
            if key.startswith(CLIENT_PREFIX)
        }
        for key, reason in unsupported.items():
            if key in properties:
                raise OptionError(CLIENT_PREFIX + key, f"is not supported: {reason}")
        for key in properties:
            if (problem := unknown_property(key)) is not None:
                raise OptionError(CLIENT_PREFIX + key, problem)
        if not properties.get("bootstrap.servers", "").strip():
            raise OptionError(f"{CLIENT_PREFIX}bootstrap.servers", "must be set: HOST:PORT,...")
        return ClientProperties(properties)

    def bound(self, which: str, default: Bound) -> Bound:
        """The first of the three options that is given, in Spark's order."""
        if (time := self.get(f"{which}Timestamp")) is not None:
            return AtTime(_parsed(f"{which}Timestamp", time, _time_ms, "a time in ms since 1970"))
        name = f"{which}OffsetsByTimestamp"
        if (times := self.get(name)) is not None:
            return AtTimes(_parsed(name, times, _times_ms, _TIMES_EXPECTED))
        name = f"{which}Offsets"
        if (offsets := self.get(name)) is None:
            return default
        for edge in Edge:
            if offsets.lower() == edge.name.lower():
                return edge
        parsed = _parsed_offsets(name, offsets, 'earliest, latest or {"topic":{"0":23,"1":-1}}')
        for partition, offset in parsed.items():
            if not EARLIEST <= offset <= MAX_OFFSET:
                raise OptionError(name, f"{offset} is no offset of {partition}")
        return AtOffsets(parsed)

    def boolean(self, name: str, *, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = (self.get(name) or default).lower()
        if value not in choices:
            raise OptionError(name, f"is {' or '.join(map(repr, choices))}, not {value!r}")
        return value

    def positive(self, name: str) -> int | None:
        if (text := self.get(name)) is None:
            return None
        number = _parsed(name, text, _long, "a whole number")
        if number <= 0:
            raise OptionError(name, f"must be positive, and is {number}")
        return number

    def not_negative(self, name: str, default: int) -> int:
        if (text := self.get(name)) is None:
            return default
        number = _parsed(name, text, _long, "a whole number")
        if number < 0:
            raise OptionError(name, f"must not be negative, and is {number}")
        return number

    def duration_ms(self, name: str, default_ms: int) -> int:
        text = self.get(name)
        return (
            default_ms
            if text is None
            else _parsed(name, text.lower(), _duration_ms, "a time such as 500ms or 15m")
        )


def _parsed(name: str, text: str, parse: Callable[[str], Value], expected: str) -> Value:
    try:
        return parse(text)
    except (ValueError, RecursionError):  # JSON that is nested beyond all sense
        raise OptionError(name, f"is {expected}, not {text!r}") from None


def _parsed_offsets(name: str, text: str, example: str) -> Offsets:
    return _parsed(name, text, parse_offsets, example)


def _time_ms(text: str) -> int:
    """Below 0 the protocol has names for offsets (-1: the latest), above there is no such time."""
    return _checked_time(int(text))


def _times_ms(text: str) -> Offsets:
    return {partition: _checked_time(time) for partition, time in parse_offsets(text).items()}


def _checked_time(time_ms: int) -> int:
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise ValueError(time_ms)
    return time_ms


def _long(text: str) -> int:
    number = int(text)
    if abs(number) > MAX_LONG:
        raise ValueError(text)
    return number


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError(text)
    return int(match[1]) * _UNITS_MS[match[2]]


def _topics(given: _Given) -> Topics:
    names = ("assign", "subscribe", "subscribePattern")
    chosen = [name for name in names if name in given]
    if not chosen:
        raise OptionError("subscribe", f"one of {', '.join(names)} must be set")
    if len(chosen) > 1:
        raise OptionError(chosen[1], f"only one of {', '.join(names)} can be set")
    name = chosen[0]
    text = given.get(name) or ""
    if name == "assign":
        partitions = _parsed(name, text, parse_partitions, '{"topicA":[0,1],"topicB":[0,1]}')
        if not partitions:
            raise OptionError(name, "names no partition")
        return Assign(partitions)
    if name == "subscribe":
        topics = frozenset(topic.strip() for topic in text.split(",") if topic.strip())
        if not topics:
            raise OptionError(name, f"names no topic: {text!r}")
        return Subscribe(topics)
    if not text:
        raise OptionError(name, "is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # [a-z&&[^q]] is a set to Java, and not to Python
            re.compile(text)
    except (re.error, FutureWarning) as error:
        raise OptionError(name, f"{text!r} is no regular expression of Python's: {error}") from None
    return SubscribePattern(text)


def _check_streaming(given: _Given) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if name in given:
            raise OptionError(name, "is for batch queries; a stream has no end")


def _check_batch(starting: Bound, ending: Bound) -> None:
    if starting is Edge.LATEST:
        raise OptionError("startingOffsets", "can't be latest for batch queries")
    if ending is Edge.EARLIEST:
        raise OptionError("endingOffsets", "can't be earliest for batch queries")
    if isinstance(starting, AtOffsets) and LATEST in starting.offsets.values():
        raise OptionError("startingOffsets", "can't be latest (-1) for batch queries")
    if isinstance(ending, AtOffsets) and EARLIEST in ending.offsets.values():
        raise OptionError("endingOffsets", "can't be earliest (-2) for batch queries")
    match starting, ending:
        case AtOffsets(first), AtOffsets(last):
            _check_order("Offsets", first, last)
        case AtTimes(first), AtTimes(last):
            _check_order("OffsetsByTimestamp", first, last)


def _check_order(
    of: str, starting: Mapping[TopicPartition, int], ending: Mapping[TopicPartition, int]
) -> None:
    """`of`: what follows `starting` and `ending` in the options' names."""
    if starting.keys() != ending.keys():
        raise OptionError(f"ending{of}", f"must name the same partitions as starting{of}")
    for partition, start in starting.items():
        if 0 <= ending[partition] < start:
            raise OptionError(
                f"starting{of}",
                f"{start} is greater than the end of {partition}, which is {ending[partition]}",
            )
