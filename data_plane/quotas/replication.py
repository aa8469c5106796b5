"""How fast replicas that are catching up may be copied, so that moving them does not starve clients.

    leader     what this broker sends to followers      leader.replication.throttled.rate, …replicas
    follower   what this broker fetches from leaders    follower.replication.throttled.rate, …replicas
    moves      between its own log directories          replica.alter.log.dirs.io.max.bytes.per.second

Rates are a broker's dynamic configuration; which replicas they bind is a topic's. A replica in sync is
never held back (fetch/reader.py and fetch/fetcher.py see to it), or a throttle would throttle producers.

Pure: seconds come in with every call; `take` hears of committed configuration from the publisher.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from data_plane.quotas.rates import QuotaWindow
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.foundation.topic_configs import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
    MOVES_RATE,
)
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

EVERY_PARTITION: Final = "*"
MIN_PAUSE_S: Final = 0.001

_TOPIC: Final = int(ResourceType.TOPIC)
_BROKER: Final = int(ResourceType.BROKER)


class ReplicationQuota:
    """One limit, and what was counted against it over a sliding window."""

    def __init__(self, window: QuotaWindow | None = None) -> None:
        self._window = window or QuotaWindow()
        self._samples: deque[tuple[float, int]] = deque()  # when each began, bytes
        self._limit: float | None = None  # bytes per second
        self._bound: dict[str, frozenset[int] | None] = {}  # partitions by topic; None: all

    def configure(self, limit: float | None) -> None:
        self._limit = limit

    @property
    def limited(self) -> bool:
        return self._limit is not None

    def bind(self, topic: str, partitions: frozenset[int] | None) -> None:
        """These partitions of the topic are limited; None: all of them."""
        if partitions is None or partitions:
            self._bound[topic] = partitions
        else:
            self._bound.pop(topic, None)

    def binds(self, tp: TopicPartition) -> bool:
        if self._limit is None or tp.topic not in self._bound:
            return False
        partitions = self._bound[tp.topic]
        return partitions is None or tp.partition in partitions

    def record(self, size: int, now: float) -> None:
        self._forget(now)
        if self._samples and now - self._samples[-1][0] < self._window.sample_s:
            start, counted = self._samples[-1]
            self._samples[-1] = (start, counted + size)
        else:
            self._samples.append((now, size))

    def pause_s(self, now: float) -> float:
        """How long until the rate is down at the limit, if nothing is counted meanwhile; 0 where it is."""
        self._forget(now)
        if self._limit is None or not self._samples:
            return 0.0
        total = sum(size for _, size in self._samples)
        counted_over = max(now - self._samples[0][0], self._window.sample_s)
        forgotten_in = max(self._samples[0][0] + self._window.span_s - now, MIN_PAUSE_S)
        if self._limit <= 0:
            return forgotten_in
        excess = total / self._limit - counted_over
        return 0.0 if excess < MIN_PAUSE_S else min(excess, max(forgotten_in, self._window.sample_s))

    def exceeded(self, now: float) -> bool:
        return self.pause_s(now) > 0

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._window.span_s:
            self._samples.popleft()


class ReplicationQuotas:
    """The three of a broker."""

    def __init__(
        self, broker_id: int, window: QuotaWindow | None = None, moves_window: QuotaWindow | None = None
    ) -> None:
        self._broker_id = broker_id
        self.leader = ReplicationQuota(window)
        self.follower = ReplicationQuota(window)
        self.moves = ReplicationQuota(moves_window)

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Hear of committed configuration."""
        for kind, name in delta.changed_configs:
            if kind == _BROKER and name in ("", str(self._broker_id)):
                self._take_rates(image)
            elif kind == _TOPIC:
                configs = image.config(_TOPIC, name)
                self.leader.bind(name, self._own(configs.get(LEADER_THROTTLED_REPLICAS, "")))
                self.follower.bind(name, self._own(configs.get(FOLLOWER_THROTTLED_REPLICAS, "")))

    def _take_rates(self, image: MetadataImage) -> None:
        values = {**image.config(_BROKER, ""), **image.config(_BROKER, str(self._broker_id))}
        for key, quota in (
            (LEADER_THROTTLED_RATE, self.leader),
            (FOLLOWER_THROTTLED_RATE, self.follower),
            (MOVES_RATE, self.moves),
        ):
            quota.configure(float(values[key]) if key in values else None)

    def _own(self, replicas: str) -> frozenset[int] | None:
        """The partitions on this broker in a list of `partition:broker, …`."""
        text = replicas.strip()
        if text == EVERY_PARTITION:
            return None
        pairs = [pair.strip().split(":") for pair in text.split(",") if pair.strip()]
        return frozenset(int(pair[0]) for pair in pairs if len(pair) == 2 and int(pair[1]) == self._broker_id)
