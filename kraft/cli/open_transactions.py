"""What is open on partitions, and whether a coordinator knows it: `kraft doctor` and `kraft txn abort` ask.

active_producers   of some partitions of one leader:           DescribeProducers
unfinished_of      what coordinators still have of producers:  ListTransactions
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kraft.cli.bootstrap import Address
from kraft.cli.wire_client import BrokerAnswers, of_each_broker, raise_for, request
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.model import TopicPartition, by_topic

if TYPE_CHECKING:
    from kraft.wire.bridge import Message

_UNFINISHED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States in which a coordinator will write markers yet."""


def active_producers(
    leader: Address, partitions: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, Message]]:
    """The open transactions of each partition. Raises `CliError`, `BrokerError`."""
    topics = [{"name": name, "partition_indexes": its} for name, its in by_topic(partitions).items()]
    for topic in request(leader, ApiKey.DESCRIBE_PRODUCERS, (0, 0), {"topics": topics}).topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            raise_for(partition.error_code, str(place))
            for each in partition.active_producers:
                yield place, each


def unfinished_of(
    bootstrap: str, producer_ids: Iterable[int], *, leave_out: Container[Address] = ()
) -> BrokerAnswers:
    """The unfinished transactions by coordinator. Raises `CliError`, `BrokerError`."""
    fields = {"state_filters": list(_UNFINISHED), "producer_id_filters": sorted(set(producer_ids))}
    return of_each_broker(bootstrap, ApiKey.LIST_TRANSACTIONS, (0, 2), fields, leave_out=leave_out)
