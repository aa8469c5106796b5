"""One row of the table of metrics: its names, its kind, what it says, and where it is read.

Nothing is kept for a metric: the place that knows a figure has it as a plain number, and a row's reader gets
it there when someone scrapes. Names come in three traditions, and dashboards with each:

    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec     its count, as
    strimzi    kafka_server_brokertopicmetrics_bytesin_total        Strimzi's rules for the JMX exporter
    reporter   kafka_server_brokertopicmetrics_bytesinpersec_total  Strimzi's metrics reporter
    confluent  kafka_server_brokertopicmetrics_bytesinpersec        Confluent's rules for the JMX exporter
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kraft.metrics.sources import Broker, Controller, Sources


class Style(StrEnum):
    """Whose names; see the module."""

    STRIMZI = "strimzi"
    REPORTER = "reporter"
    CONFLUENT = "confluent"


class Kind(StrEnum):
    """The types of OpenMetrics that we use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    UNKNOWN = "unknown"


Number = int | float
Sample = tuple[tuple[str, ...], Number]
"""The values of the labels, in their order, and the figure."""


@dataclass(frozen=True, slots=True)
class OverManyTurns:
    """Samples of very many things, taken over many turns of the loop: what they are read from stays as it is,
    or is a copy."""

    samples: Iterable[Sample]


Samples = Number | Iterable[Sample] | OverManyTurns
"""A bare number where there are no labels; nothing where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class MBean:
    """A metric of Kafka's own, by its JMX name."""

    domain: str
    """As in kafka.server."""
    type: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A row. Exactly one of `node`, `broker` and `controller` reads it, where the node has that role."""

    name: MBean | str
    """A string where all styles use the same name; a counter's ends in _total."""
    kind: Kind = Kind.GAUGE
    help: str
    labels: tuple[str, ...] = ()
    node: Callable[[Sources], Samples] | None = None
    broker: Callable[[Broker], Samples] | None = None
    controller: Callable[[Controller], Samples] | None = None
    only: Style | None = None
    """The style that has the metric, if only one has."""

    def read(self, sources: Sources) -> Samples:
        if self.node is not None:
            return self.node(sources)
        if self.broker is not None:
            return () if sources.broker is None else self.broker(sources.broker)
        assert self.controller is not None
        return () if sources.controller is None else self.controller(sources.controller)

    def name_in(self, style: Style) -> str:
        """The name of its samples."""
        if isinstance(self.name, str):
            return self.name
        name = self.name.name
        if self.kind is Kind.COUNTER and style is Style.STRIMZI:
            name = f"{name.removesuffix(_PER_SEC)}_total"
        elif self.kind is Kind.COUNTER and style is Style.REPORTER:
            name = f"{name}_total"
        elif style is Style.STRIMZI and name.endswith(_PERCENT):
            name = f"{name.removesuffix(_PERCENT)}_percent"
        return f"kafka_{self.name.domain}_{self.name.type}_{name}".replace(".", "_").lower()

    def kind_in(self, style: Style) -> Kind:
        """A counter whose name says nothing of it cannot be called one."""
        if self.kind is Kind.COUNTER and not self.name_in(style).endswith("_total"):
            return Kind.UNKNOWN
        return self.kind


_PER_SEC: Final = "PerSec"
_PERCENT: Final = "Percent"
