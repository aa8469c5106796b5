"""What clients have pushed of their own metrics (KIP-714): the newest of each, for a while.

    PushTelemetry -> take -> /metrics (kraft_client_metric), /api/v1/clients

A client may push to any broker, and changes it seldom: each node tells what came to it. Memory is bounded,
whatever strangers push.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kraft.wire.otlp import Point
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.image import ConfigResource

MAX_CLIENTS: Final = 200
MAX_SERIES: Final = 300
"""Time series of one client."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of the series of all clients together, as they lie in memory: those that were heard of last stay."""
MAX_ATTRIBUTES: Final = 6
FORGET_S: Final = 900.0
"""Three times the usual time between two pushes."""
LONGEST_NAME: Final = 128
LONGEST_TEXT: Final = 48
"""Characters of an attribute's key or value."""
SERIES_BYTES: Final = 300
ATTRIBUTE_BYTES: Final = 64
"""What a series and an attribute take beside their texts."""

Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class TelemetryClient:
    """One client process, as it calls itself."""

    instance_id: UUID
    client_id: str
    software: str
    host: str
    heard_at: float = 0.0
    pushes: int = 0
    figures: dict[Series, float] = field(default_factory=dict)
    weight: int = 0
    """Bytes that its figures take."""


class ClientTelemetry:
    """The metrics that the clients of one node have pushed."""

    def __init__(self) -> None:
        self._clients: OrderedDict[UUID, TelemetryClient] = OrderedDict()  # the one heard of last is last
        self._kept = 0
        """The weight of all of them."""
        self.reading = asyncio.Lock()
        """Pushes are read one after the other: many strangers together keep one thread busy, not all."""
        self._configs: Mapping[ConfigResource, Mapping[str, str]] = {}
        self._subscriptions: tuple[Mapping[str, str], ...] = ()

    def clients(self, now: float) -> Iterator[TelemetryClient]:
        self._forget_silent(now)
        return iter(self._clients.values())

    def subscriptions(
        self, configs: Mapping[ConfigResource, Mapping[str, str]]
    ) -> tuple[Mapping[str, str], ...]:
        """Those among all configs, which are only gone through when they have changed: there may be one for
        each topic, and every client asks."""
        if configs is not self._configs:
            kind = ResourceType.CLIENT_METRICS
            self._subscriptions = tuple(values for (each, _), values in configs.items() if each == kind)
            self._configs = configs
        return self._subscriptions

    def take(self, client: TelemetryClient, points: Iterable[Point], now: float) -> None:
        """A push. What is told as a difference is added up."""
        self._forget_silent(now)
        known = self._clients.pop(client.instance_id, client)
        self._clients[client.instance_id] = known
        known.heard_at = now
        known.pushes += 1
        for point in points:
            series = (point.name[:LONGEST_NAME], _short(point.attributes))
            before = known.figures.get(series)
            if before is None:
                if len(known.figures) >= MAX_SERIES:
                    continue
                weight = _weight(series)
                known.weight += weight
                self._kept += weight
            known.figures[series] = (before or 0.0) + point.value if point.is_delta else point.value
        while len(self._clients) > MAX_CLIENTS or self._kept > MOST_BYTES:
            self.end(next(iter(self._clients)))

    def end(self, instance_id: UUID) -> None:
        """The client has said goodbye."""
        known = self._clients.pop(instance_id, None)
        if known is not None:
            self._kept -= known.weight

    def _forget_silent(self, now: float) -> None:
        while self._clients:
            instance_id, known = next(iter(self._clients.items()))
            if now - known.heard_at < FORGET_S:
                break
            self.end(instance_id)


def _short(attributes: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((key[:LONGEST_TEXT], value[:LONGEST_TEXT]) for key, value in attributes[:MAX_ATTRIBUTES])


def _weight(series: Series) -> int:
    """Bytes in memory, where a character takes up to four."""
    name, attributes = series
    texts = sum(sys.getsizeof(key) + sys.getsizeof(value) for key, value in attributes)
    return SERIES_BYTES + sys.getsizeof(name) + texts + ATTRIBUTE_BYTES * len(attributes)
