"""How fast replicas that are catching up may be copied, so that moving them does not starve clients.

    leader     what this broker sends to followers      leader.replication.throttled.rate, …replicas
    follower   what this broker fetches from leaders    follower.replication.throttled.rate, …replicas
    moves      between its own log directories          replica.alter.log.dirs.io.max.bytes.per.second

Rates are a broker's dynamic configuration; which replicas they bind is a topic's. A replica in sync is
never held back (fetch/reader.py and fetch/fetcher.py see to it), or a throttle would throttle producers.

A list of replicas may name thousands. It is understood once, when it is first asked for: where nothing is
limited, never.

Pure: seconds come in with every call; `take` hears of committed configuration from the publisher.
"""

from __future__ import annotations

import re
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


class ThrottledReplicas:
    """A topic's partitions on one broker in a list of `partition:broker, …`."""

    __slots__ = ("_broker_id", "_partitions", "_understood", "text")

    def __init__(self, text: str, broker_id: int) -> None:
        self.text = text
        self._broker_id = broker_id
        self._understood = text.strip() == EVERY_PARTITION
        self._partitions: frozenset[int] | None = None  # all of them

    def __contains__(self, partition: int) -> bool:
        if not self._understood:
            self._understood = True
            own = rf"(?:^|,)\s*([0-9]{{1,10}}):0*{self._broker_id}\s*(?=,|$)"
            self._partitions = frozenset(map(int, re.findall(own, self.text)))
        return self._partitions is None or partition in self._partitions


class ReplicationQuota:
    """One limit, and what was counted against it over a sliding window."""

    def __init__(self, window: QuotaWindow | None = None) -> None:
        self._window = window or QuotaWindow()
        self._samples: deque[tuple[float, int]] = deque()  # when each began, bytes
        self._limit: float | None = None  # bytes per second
        self._bound: dict[str, ThrottledReplicas] = {}

    def configure(self, limit: float | None) -> None:
        self._limit = limit

    @property
    def limited(self) -> bool:
        return self._limit is not None

    def bind(self, topic: str, replicas: str, broker_id: int) -> None:
        """The topic's replicas in this list are limited, where they are the broker's."""
        if not replicas:
            self._bound.pop(topic, None)
        elif topic not in self._bound or self._bound[topic].text != replicas:
            self._bound[topic] = ThrottledReplicas(replicas, broker_id)

    def binds(self, tp: TopicPartition) -> bool:
        if self._limit is None or tp.topic not in self._bound:
            return False
        return tp.partition in self._bound[tp.topic]

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
                self.leader.bind(name, configs.get(LEADER_THROTTLED_REPLICAS, ""), self._broker_id)
                self.follower.bind(name, configs.get(FOLLOWER_THROTTLED_REPLICAS, ""), self._broker_id)

    def _take_rates(self, image: MetadataImage) -> None:
        values = {**image.config(_BROKER, ""), **image.config(_BROKER, str(self._broker_id))}
        for key, quota in (
            (LEADER_THROTTLED_RATE, self.leader),
            (FOLLOWER_THROTTLED_RATE, self.follower),
            (MOVES_RATE, self.moves),
        ):
            quota.configure(float(values[key]) if key in values else None)
