"""Metrics of coordinators, and those of kafka-exporter and kafka-lag-exporter.

Each exporter is one process that looks at the whole cluster; here every node tells its part, and no two the
same: of a partition its leader, of a group its coordinator. So their sums are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Final

from data_plane.replication.partition import Partition
from kraft.metrics.group_lag import GroupLag, PartitionLag
from kraft.metrics.metric import MBean, Metric, Number, OverManyTurns, Sample, Samples
from kraft.metrics.sources import Broker

_PARTITION: Final = ("topic", "partition")


# ---- coordinators ------------------------------------------------------------------------------------


def _groups_in(*states: str) -> Callable[[Broker], Samples]:
    def read(broker: Broker) -> int:
        counts = broker.lags.counts.items()
        return sum(count for (_, state), count in counts if not states or state in states)

    return read


def _of_groups(name: str, help: str, *states: str) -> Metric:
    bean = MBean("coordinator.group", "GroupMetadataManager", name)
    return Metric(name=bean, help=help, broker=_groups_in(*states))


def _group_counts(broker: Broker) -> Iterator[Sample]:
    yield from broker.lags.counts.items()


def _load_time(which: Callable[[list[float]], float]) -> Callable[[Broker], Samples]:
    def read(broker: Broker) -> float:
        took_s = [shard.load_s for shard in broker.context.transaction_coordinator.shards]
        return round(which(took_s or [0.0]) * 1000, 3)

    return read


_COORDINATORS: Final = (
    _of_groups("NumGroups", "Groups coordinated here, of all protocols."),
    _of_groups("NumGroupsStable", "Groups whose members have what was assigned to them.", "Stable"),
    _of_groups("NumGroupsPreparingRebalance", "Groups whose members are joining.", "PreparingRebalance"),
    _of_groups("NumGroupsCompletingRebalance", "Groups whose leader is assigning.", "CompletingRebalance"),
    _of_groups("NumGroupsEmpty", "Groups with offsets but without members.", "Empty"),
    _of_groups("NumGroupsDead", "Groups that are being removed.", "Dead"),
    Metric(
        name="kafka_server_group_coordinator_metrics_group_count",
        help="Groups coordinated here.",
        labels=("protocol", "state"),
        broker=_group_counts,
    ),
    Metric(
        name="kafka_server_transaction_coordinator_metrics_partition_load_time_max",
        help="The longest load of a partition of __transaction_state, in ms.",
        broker=_load_time(max),
    ),
    Metric(
        name="kafka_server_transaction_coordinator_metrics_partition_load_time_avg",
        help="The mean load of a partition of __transaction_state, in ms.",
        broker=_load_time(fmean),
    ),
)


# ---- kafka-exporter: partitions, by their leaders ----------------------------------------------------


def _led(broker: Broker) -> Iterator[Partition]:
    return (each for each in broker.context.replica_manager if each.leader is not None)


def _each_led(figure: Callable[[Partition], Number]) -> Callable[[Broker], Samples]:
    def read(partitions: list[Partition]) -> Iterator[Sample]:
        for each in partitions:
            if each.leader is not None:
                yield (each.tp.topic, str(each.tp.partition)), figure(each)

    return lambda broker: OverManyTurns(read(list(broker.context.replica_manager)))


def _replicas(partition: Partition) -> tuple[int, ...]:
    return () if partition.leader is None else partition.leader.replicas


def _isr(partition: Partition) -> tuple[int, ...]:
    return () if partition.leader is None else partition.leader.isr


def _led_row(name: str, help: str, figure: Callable[[Partition], Number]) -> Metric:
    return Metric(name=name, help=help, labels=_PARTITION, broker=_each_led(figure))


def _topic_partitions(broker: Broker) -> Iterator[Sample]:
    topics = broker.context.node.image.topics_by_name
    for each in _led(broker):
        if each.tp.partition == 0 and each.tp.topic in topics:
            yield (each.tp.topic,), len(topics[each.tp.topic].partitions)


def _broker_info(broker: Broker) -> Iterator[Sample]:
    node = broker.context.node
    for endpoint in node.config.advertised_endpoints[:1]:
        yield (str(node.node_id), f"{endpoint.host}:{endpoint.port}"), 1


_TOPIC_PARTITION: Final = "kafka_topic_partition_"

_KAFKA_EXPORTER: Final = (
    Metric(name="kafka_broker_info", help="This broker.", labels=("id", "address"), broker=_broker_info),
    Metric(
        name="kafka_topic_partitions",
        help="Partitions of a topic; told by the leader of its first.",
        labels=("topic",),
        broker=_topic_partitions,
    ),
    _led_row(f"{_TOPIC_PARTITION}current_offset", "The high watermark.", lambda each: each.high_watermark),
    _led_row(f"{_TOPIC_PARTITION}oldest_offset", "The first offset.", lambda each: each.log.log_start_offset),
    _led_row(f"{_TOPIC_PARTITION}leader", "The leader's id.", lambda each: each.leader_id),
    _led_row(f"{_TOPIC_PARTITION}replicas", "Replicas.", lambda each: len(_replicas(each))),
    _led_row(f"{_TOPIC_PARTITION}in_sync_replica", "Replicas in sync.", lambda each: len(_isr(each))),
    _led_row(f"{_TOPIC_PARTITION}leader_is_preferred", "1: the first replica leads.",
             lambda each: int(each.leader_id == _replicas(each)[0])),
    _led_row(f"{_TOPIC_PARTITION}under_replicated_partition", "1: a replica is not in sync.",
             lambda each: int(len(_isr(each)) < len(_replicas(each)))),
    _led_row("kafka_partition_latest_offset", "The high watermark.", lambda each: each.high_watermark),
    _led_row("kafka_partition_earliest_offset", "The first offset.", lambda each: each.log.log_start_offset),
)  # fmt: skip


# ---- the exporters: groups, by their coordinators ----------------------------------------------------


def _each_position(figure: Callable[[PartitionLag], Number | None]) -> Callable[[Broker], Samples]:
    def read(groups: list[GroupLag]) -> Iterator[Sample]:
        for group in groups:
            name = group.group.listed.group_id
            for each in group.partitions:
                value = figure(each)
                if value is not None:
                    yield (name, each.partition.topic, str(each.partition.partition)), value

    return lambda broker: OverManyTurns(read(broker.lags.groups))


def _each_group(figure: Callable[[GroupLag], Number]) -> Callable[[Broker], Samples]:
    def read(groups: list[GroupLag]) -> Iterator[Sample]:
        for group in groups:
            if group.partitions:
                yield (group.group.listed.group_id,), figure(group)

    return lambda broker: OverManyTurns(read(broker.lags.groups))


def _members(broker: Broker) -> Samples:
    groups = broker.lags.groups
    return OverManyTurns(((each.group.listed.group_id,), len(each.group.members)) for each in groups)


_POSITION: Final = ("consumergroup", "topic", "partition")
_GROUP_POSITION: Final = ("group", "topic", "partition")

_GROUPS: Final = (
    Metric(
        name="kafka_consumergroup_members",
        help="Members of a group.",
        labels=("consumergroup",),
        broker=_members,
    ),
    Metric(
        name="kafka_consumergroup_current_offset",
        help="What a group has committed.",
        labels=_POSITION,
        broker=_each_position(lambda each: each.offset),
    ),
    Metric(
        name="kafka_consumergroup_lag",
        help="Offsets between that and the high watermark.",
        labels=_POSITION,
        broker=_each_position(lambda each: each.lag),
    ),
    Metric(
        name="kafka_consumergroup_group_offset",
        help="What a group has committed.",
        labels=_GROUP_POSITION,
        broker=_each_position(lambda each: each.offset),
    ),
    Metric(
        name="kafka_consumergroup_group_lag",
        help="Offsets between that and the high watermark.",
        labels=_GROUP_POSITION,
        broker=_each_position(lambda each: each.lag),
    ),
    Metric(
        name="kafka_consumergroup_group_lag_seconds",
        help="For how many seconds there have been records that the group has not read.",
        labels=_GROUP_POSITION,
        broker=_each_position(lambda each: each.lag_s),
    ),
    Metric(
        name="kafka_consumergroup_group_max_lag",
        help="The largest lag of a group's partitions.",
        labels=("group",),
        broker=_each_group(lambda group: group.max_lag),
    ),
    Metric(
        name="kafka_consumergroup_group_max_lag_seconds",
        help="The longest lag of a group's partitions.",
        labels=("group",),
        broker=_each_group(lambda group: group.max_lag_s),
    ),
)

ROWS: Final = (*_COORDINATORS, *_KAFKA_EXPORTER, *_GROUPS)
