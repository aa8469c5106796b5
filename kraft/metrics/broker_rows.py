"""Metrics of a broker's replicas: ReplicaManager, Partition, Log, BrokerTopicMetrics, fetchers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from data_plane.replication.broker_topic_stats import TopicStats
from data_plane.replication.partition import Partition
from kraft.broker.lifecycle import BrokerState
from kraft.metrics.metric import Kind, MBean, Metric, Number, OverManyTurns, Sample, Samples
from kraft.metrics.sources import Broker

_STATES: Final = {
    BrokerState.STARTING: 1,
    BrokerState.FENCED: 2,
    BrokerState.RUNNING: 3,
    BrokerState.STOPPING: 6,
    BrokerState.STOPPED: 7,
}
"""Kafka's numbers: STARTING, RECOVERY (which ours includes: it is not unfenced yet), RUNNING, ..."""
_PARTITION: Final = ("topic", "partition")


# ---- the replica manager -----------------------------------------------------------------------------


def _count(which: Callable[[Partition], bool]) -> Callable[[Broker], Samples]:
    return lambda broker: sum(map(which, broker.context.replica_manager))


def _is_under_replicated(partition: Partition) -> bool:
    leader = partition.leader
    return leader is not None and len(leader.isr) < len(leader.replicas)


def _is_under_min_isr(partition: Partition) -> bool:
    return partition.leader is not None and partition.leader.under_min_isr


def _is_at_min_isr(partition: Partition) -> bool:
    leader = partition.leader
    return leader is not None and len(leader.isr) == leader.min_isr


def _is_reassigning(broker: Broker) -> Samples:
    image = broker.context.node.image
    led = (each.tp for each in broker.context.replica_manager if each.leader is not None)
    return sum((known := image.partition(tp)) is not None and known.reassigning for tp in led)


def _offline_dirs(broker: Broker) -> Samples:
    return sum(not directory.online for directory in broker.context.replica_manager.logs.dirs)


def _of_manager(name: str, help: str, read: Callable[[Broker], Samples], kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(name=MBean("server", "ReplicaManager", name), kind=kind, help=help, broker=read)


_REPLICA_MANAGER: Final = (
    _of_manager("LeaderCount", "Partitions that this broker leads.", _count(lambda each: each.is_leader)),
    _of_manager(
        "PartitionCount", "Replicas on this broker.", lambda broker: len(broker.context.replica_manager)
    ),
    _of_manager(
        "UnderReplicatedPartitions",
        "Partitions led here of which a replica is not in sync.",
        _count(_is_under_replicated),
    ),
    _of_manager(
        "UnderMinIsrPartitionCount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
        _count(_is_under_min_isr),
    ),
    _of_manager(
        "AtMinIsrPartitionCount",
        "Partitions led here that may lose no more replicas.",
        _count(_is_at_min_isr),
    ),
    _of_manager(
        "OfflineReplicaCount",
        "Replicas here that are not served: their disk or their log has failed.",
        _count(lambda each: each.offline),
    ),
    _of_manager("ReassigningPartitions", "Partitions led here that are being moved.", _is_reassigning),
    _of_manager(
        "IsrShrinksPerSec",
        "Followers dropped from the ISR by leaders here, for being behind.",
        lambda broker: broker.context.replica_manager.isr_stats.shrinks,
        Kind.COUNTER,
    ),
    _of_manager(
        "IsrExpandsPerSec",
        "Followers taken into the ISR by leaders here.",
        lambda broker: broker.context.replica_manager.isr_stats.expands,
        Kind.COUNTER,
    ),
    _of_manager(
        "FailedIsrUpdatesPerSec",
        "Changes of an ISR that the controller refused.",
        lambda broker: broker.context.replica_manager.isr_stats.failed,
        Kind.COUNTER,
    ),
    Metric(
        name=MBean("log", "LogManager", "OfflineLogDirectoryCount"),
        help="Log directories whose disk has failed.",
        broker=_offline_dirs,
    ),
    Metric(
        name=MBean("server", "KafkaServer", "BrokerState"),
        help="1 starting, 2 fenced, 3 running, 6 controlled shutdown, 7 stopping.",
        broker=lambda broker: _STATES[broker.context.lifecycle.state],
    ),
)


# ---- one series per replica --------------------------------------------------------------------------


def _each(figure: Callable[[Partition], Number]) -> Callable[[Broker], Samples]:
    def read(partitions: list[Partition]) -> Iterator[Sample]:
        for partition in partitions:
            if not partition.offline:
                yield (partition.tp.topic, str(partition.tp.partition)), figure(partition)

    return lambda broker: OverManyTurns(read(list(broker.context.replica_manager)))


def _of_partition(type_: str, name: str, help: str, figure: Callable[[Partition], Number]) -> Metric:
    domain = "log" if type_ == "Log" else "cluster"
    return Metric(name=MBean(domain, type_, name), help=help, labels=_PARTITION, broker=_each(figure))


def _replicas(partition: Partition) -> int:
    return 0 if partition.leader is None else len(partition.leader.replicas)


def _in_sync(partition: Partition) -> int:
    return 0 if partition.leader is None else len(partition.leader.isr)


_PARTITIONS: Final = (
    _of_partition("Log", "Size", "Bytes of the log's segments.", lambda each: each.log.size),
    _of_partition("Log", "NumLogSegments", "Segments.", lambda each: len(each.log.segments)),
    _of_partition("Log", "LogStartOffset", "The first offset kept.", lambda each: each.log.log_start_offset),
    _of_partition("Log", "LogEndOffset", "The next offset.", lambda each: each.log.log_end_offset),
    _of_partition("Partition", "ReplicasCount", "Replicas; 0 where it is not led here.", _replicas),
    _of_partition("Partition", "InSyncReplicasCount", "In sync; 0 where it is not led here.", _in_sync),
    _of_partition("Partition", "UnderReplicated", "1: led here, and a replica is not in sync.",
                  lambda each: int(_is_under_replicated(each))),
    _of_partition("Partition", "UnderMinIsr", "1: led here, and acks=all is refused.",
                  lambda each: int(_is_under_min_isr(each))),
    _of_partition("Partition", "AtMinIsr", "1: led here, and it may lose no more replicas.",
                  lambda each: int(_is_at_min_isr(each))),
)  # fmt: skip


# ---- topics ------------------------------------------------------------------------------------------


def _per_topic(figure: Callable[[TopicStats], int]) -> Callable[[Broker], Samples]:
    """As Kafka's: a series for all topics together, and one for each."""

    def read(broker: Broker) -> Iterator[Sample]:
        stats = broker.context.replica_manager.topic_stats
        yield ("",), figure(stats.total())
        for topic, each in stats:
            yield (topic,), figure(each)

    return read


def _of_topics(name: str, help: str, figure: Callable[[TopicStats], int]) -> Metric:
    bean = MBean("server", "BrokerTopicMetrics", name)
    return Metric(name=bean, kind=Kind.COUNTER, help=help, labels=("topic",), broker=_per_topic(figure))


_TOPICS: Final = (
    _of_topics("MessagesInPerSec", "Records appended by producers.", lambda t: t.messages_in),
    _of_topics("BytesInPerSec", "Bytes appended by producers.", lambda t: t.bytes_in),
    _of_topics("BytesOutPerSec", "Bytes sent to consumers.", lambda t: t.bytes_out),
    _of_topics("BytesRejectedPerSec", "Bytes refused as too large.", lambda t: t.bytes_rejected),
    _of_topics("ReplicationBytesInPerSec", "Bytes fetched from leaders.", lambda t: t.replication_bytes_in),
    _of_topics("ReplicationBytesOutPerSec", "Bytes sent to followers.", lambda t: t.replication_bytes_out),
    _of_topics("TotalProduceRequestsPerSec", "Partitions in produces.", lambda t: t.produce_requests),
    _of_topics(
        "FailedProduceRequestsPerSec", "Partitions refused in produces.", lambda t: t.failed_produce_requests
    ),
    _of_topics("TotalFetchRequestsPerSec", "Partitions in answered fetches.", lambda t: t.fetch_requests),
    _of_topics(
        "FailedFetchRequestsPerSec", "Partitions refused in fetches.", lambda t: t.failed_fetch_requests
    ),
    _of_topics("ProduceMessageConversionsPerSec", "Always 0: there is only one record format.", lambda _: 0),
    _of_topics("FetchMessageConversionsPerSec", "Always 0: there is only one record format.", lambda _: 0),
)


# ---- following, and waiting --------------------------------------------------------------------------


def _min_fetch_rate(broker: Broker) -> Iterator[Sample]:
    rates = [
        broker.rates.per_second(f"fetches from {each.leader_id} {number}", each.fetches)
        for number, each in enumerate(broker.context.fetchers)
    ]
    yield ("Replica",), min(rates, default=0.0)


def _max_lag(broker: Broker) -> Iterator[Sample]:
    yield ("Replica",), max((each.max_lag for each in broker.context.fetchers), default=0)


def _purgatories(broker: Broker) -> Iterator[Sample]:
    waiting = sum(len(each.high_watermark_purgatory) for each in broker.context.replica_manager)
    yield ("Produce",), waiting
    yield ("Fetch",), broker.context.fetch_service.parked


_WAITING: Final = (
    Metric(
        name=MBean("server", "ReplicaFetcherManager", "MaxLag"),
        help="How many records the replica that lags most is behind its leader.",
        labels=("clientid",),
        broker=_max_lag,
    ),
    Metric(
        name=MBean("server", "ReplicaFetcherManager", "MinFetchRate"),
        help="Fetches a second of the slowest fetcher.",
        labels=("clientid",),
        broker=_min_fetch_rate,
    ),
    Metric(
        name=MBean("server", "DelayedOperationPurgatory", "PurgatorySize"),
        help="Requests that wait: produces for followers, fetches for data.",
        labels=("delayedoperation",),
        broker=_purgatories,
    ),
    Metric(
        name=MBean("server", "FetchSessionCache", "NumIncrementalFetchSessions"),
        help="Fetch sessions that are kept.",
        broker=lambda broker: len(broker.context.fetch_service.sessions),
    ),
    Metric(
        name=MBean("server", "FetchSessionCache", "NumIncrementalFetchPartitionsCached"),
        help="Partitions of all fetch sessions.",
        broker=lambda broker: broker.context.fetch_service.sessions.partitions,
    ),
    Metric(
        name=MBean("server", "FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec"),
        kind=Kind.COUNTER,
        help="Fetch sessions that had to make room for others.",
        broker=lambda broker: broker.context.fetch_service.sessions.evictions,
    ),
)

ROWS: Final = (*_REPLICA_MANAGER, *_PARTITIONS, *_TOPICS, *_WAITING)
