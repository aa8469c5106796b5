"""Which partitions a query reads: what `assign`, `subscribe` and `subscribePattern` select in a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.errors import SourceError
from spark_connector.options import Assign, Subscribe, Topics


class TopicLookup(Protocol):
    """What the cluster knows about its topics."""

    def topic_names(self) -> list[str]:
        """The names of all topics except internal ones."""
        ...

    def partitions_of(self, topics: Iterable[str]) -> set[TopicPartition]:
        """All partitions of those of the topics that exist."""
        ...

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """The ids of topics whose partitions were listed last; old brokers have none."""
        ...


def assigned_partitions(
    topics: Topics, lookup: TopicLookup, read_before: Iterable[str] = ()
) -> frozenset[TopicPartition]:
    """Those that exist. `read_before`: topics that a pattern matched before. They are asked for by name,
    because brokers do not list what we may not describe: with the right taken away, a topic would look
    deleted."""
    match topics:
        case Assign(partitions):
            existing = lookup.partitions_of({each.topic for each in partitions})
            return partitions & existing
        case Subscribe(names):
            return frozenset(lookup.partitions_of(names))
    candidates = {*lookup.topic_names(), *read_before}
    return frozenset(lookup.partitions_of(name for name in candidates if topics.matches(name)))


def ids_of(partitions: Iterable[TopicPartition], lookup: TopicLookup) -> dict[str, UUID]:
    return lookup.topic_ids({each.topic for each in partitions})


def require_all(topics: Topics, existing: Iterable[TopicPartition]) -> None:
    """A query does not begin with topics that do not exist. Raises `SourceError`."""
    match topics:
        case Assign(partitions):
            missing = sorted(map(str, partitions - set(existing)))
            option, what = "assign", "partition"
        case Subscribe(names):
            missing = sorted(names - {each.topic for each in existing})
            option, what = "subscribe", "topic"
        case _:
            return  # a topic that matches the pattern may be created later
    if missing:
        raise SourceError(
            "UNKNOWN_TOPIC_OR_PARTITION", f"Option '{option}': {what} {', '.join(missing)} does not exist"
        )
