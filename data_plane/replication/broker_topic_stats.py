"""How much comes into and goes out of the topics of a broker: Kafka's BrokerTopicMetrics.

    Partition.append_as_leader, append_as_follower, fetch/reader -> TopicStats -> read when someone looks

Plain counters on the hot path, one object for all replicas of a topic. What a topic has counted stays in the
broker's totals when its last replica goes.
"""

from __future__ import annotations

from collections.abc import Iterator


class TopicStats:
    """What one topic has counted since the broker started, or since its first replica came."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
        "replicas",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.replicas = 0
        """How many replicas of the topic this broker has."""
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.produce_requests = 0
        """Partitions in produce requests: Kafka counts them so."""
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        self.failed_fetch_requests = 0

    def appended(self, messages: int, size: int) -> None:
        """Count an append by a producer or a coordinator; a duplicate batch is a request without bytes."""
        self.produce_requests += 1
        if size:
            self.messages_in += messages
            self.bytes_in += size

    def fetched(self, size: int, *, by_follower: bool) -> None:
        self.fetch_requests += 1
        if by_follower:
            self.replication_bytes_out += size
        else:
            self.bytes_out += size

    def add(self, other: TopicStats) -> None:
        for name in COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTERS = tuple(name for name in TopicStats.__slots__ if name != "replicas")


class BrokerTopicStats:
    """The stats of all topics that have a replica here."""

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicStats] = {}
        self._gone = TopicStats()

    def __iter__(self) -> Iterator[tuple[str, TopicStats]]:
        return iter(self._by_topic.items())

    def join(self, topic: str) -> TopicStats:
        """One more replica of the topic counts here."""
        stats = self._by_topic.get(topic)
        if stats is None:
            stats = self._by_topic[topic] = TopicStats()
        stats.replicas += 1
        return stats

    def leave(self, topic: str) -> None:
        """A replica is gone."""
        stats = self._by_topic[topic]
        stats.replicas -= 1
        if not stats.replicas:
            del self._by_topic[topic]
            self._gone.add(stats)

    def total(self) -> TopicStats:
        """The totals of all topics, including those that are gone."""
        total = TopicStats()
        total.add(self._gone)
        for stats in self._by_topic.values():
            total.add(stats)
        return total
