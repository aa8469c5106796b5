"""What topics have counted, and what stays of it."""

from __future__ import annotations

from data_plane.replication.broker_topic_stats import BrokerTopicStats


def test_replicas_of_a_topic_count_together() -> None:
    stats = BrokerTopicStats()
    first, second = stats.join("t"), stats.join("t")
    first.appended(3, 300)
    second.appended(1, 100)
    second.appended(1, 0)  # a duplicate: a request, and no bytes
    ((topic, counted),) = stats
    assert (topic, counted.messages_in, counted.bytes_in, counted.produce_requests) == ("t", 4, 400, 3)


def test_consumers_and_followers_are_distinguished() -> None:
    stats = BrokerTopicStats().join("t")
    stats.fetched(10, by_follower=False)
    stats.fetched(7, by_follower=True)
    assert (stats.bytes_out, stats.replication_bytes_out, stats.fetch_requests) == (10, 7, 2)


def test_the_total_never_falls() -> None:
    stats = BrokerTopicStats()
    for topic, size in (("a", 5), ("b", 7)):
        stats.join(topic).appended(1, size)
    stats.join("a")
    stats.leave("a")
    assert [topic for topic, _ in stats] == ["a", "b"]
    stats.leave("a")
    assert [topic for topic, _ in stats] == ["b"]
    assert stats.total().bytes_in == 12
