"""Metrics of controllers: KafkaController, ControllerStats, and Raft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kraft.metrics.metric import Kind, MBean, Metric, Sample, Samples
from kraft.metrics.sources import Controller
from metadata_quorum.metadata.image import MetadataImage

_MS: Final = 1000


def _image(controller: Controller) -> MetadataImage:
    return controller.context.quorum_controller.image


def _brokers(*, fenced: bool) -> Callable[[Controller], Samples]:
    return lambda controller: sum(broker.fenced is fenced for broker in _image(controller).brokers.values())


def _of_controller(
    name: str, help: str, read: Callable[[Controller], Samples], kind: Kind = Kind.GAUGE
) -> Metric:
    return Metric(name=MBean("controller", "KafkaController", name), kind=kind, help=help, controller=read)


_CONTROLLER: Final = (
    _of_controller(
        "ActiveControllerCount",
        "1 on the active controller.",
        lambda controller: int(controller.context.quorum_controller.is_active),
    ),
    _of_controller("ActiveBrokerCount", "Brokers that are not fenced.", _brokers(fenced=False)),
    _of_controller("FencedBrokerCount", "Brokers that are registered and fenced.", _brokers(fenced=True)),
    _of_controller("GlobalTopicCount", "Topics.", lambda controller: len(_image(controller).topics_by_name)),
    _of_controller(
        "GlobalPartitionCount", "Partitions.", lambda controller: controller.partition_counts.partitions
    ),
    _of_controller(
        "OfflinePartitionsCount",
        "Partitions without a leader.",
        lambda controller: controller.partition_counts.offline,
    ),
    _of_controller(
        "PreferredReplicaImbalanceCount",
        "Partitions that are not led by their preferred replica.",
        lambda controller: controller.partition_counts.imbalanced,
    ),
    _of_controller(
        "MetadataErrorCount",
        "Always 0: a controller that cannot apply a committed record stops.",
        lambda _: 0,
    ),
    _of_controller(
        "LastCommittedRecordOffset",
        "The last offset of the metadata log that this controller has applied.",
        lambda controller: _image(controller).offset,
    ),
    Metric(
        name=MBean("controller", "ControllerStats", "UncleanLeaderElectionsPerSec"),
        kind=Kind.COUNTER,
        help="Elections of a replica that was not in sync, since this node started: records may be lost.",
        controller=lambda controller: controller.events.unclean_elections,
    ),
)


# ---- Raft --------------------------------------------------------------------------------------------


def _state(controller: Controller) -> str:
    raft = controller.context.raft
    if raft.is_leader:
        return "leader"
    return "follower" if raft.leader_id >= 0 else "candidate"


def _current_state(controller: Controller) -> Iterator[Sample]:
    yield (_state(controller),), 1


def _append_rate(controller: Controller) -> float:
    rate = controller.rates.per_second("raft index", controller.context.raft.state().last_index)
    return rate if controller.context.raft.is_leader else 0.0


def _fetch_rate(controller: Controller) -> float:
    rate = controller.rates.per_second("raft index", controller.context.raft.state().last_index)
    return 0.0 if controller.context.raft.is_leader else rate


def _commit_latency(controller: Controller) -> float:
    traffic = controller.context.raft.traffic
    return controller.rates.mean("raft commits", traffic.commit_s * _MS, traffic.commits)


def _of_raft(name: str, help: str, read: Callable[[Controller], Samples], *labels: str) -> Metric:
    return Metric(name=f"kafka_server_raftmetrics_{name}", help=help, labels=labels, controller=read)


def _of_channel(name: str, help: str, read: Callable[[Controller], Samples]) -> Metric:
    full = f"kafka_server_raftchannelmetrics_{name}_total"
    return Metric(name=full, kind=Kind.COUNTER, help=help, controller=read)


_RAFT: Final = (
    _of_raft("current_state", "leader, follower, or candidate.", _current_state, "current_state"),
    _of_raft("current_leader", "The leader's id; -1: not known.", lambda each: each.context.raft.leader_id),
    _of_raft("current_epoch", "Raft's term.", lambda each: each.context.raft.term),
    _of_raft("current_vote", "Its vote, or -1.", lambda each: each.context.raft.state().voted_for),
    _of_raft("high_watermark", "Raft's commit index.", lambda each: each.context.raft.state().commit_index),
    _of_raft("log_end_offset", "Raft's last index.", lambda each: each.context.raft.state().last_index),
    _of_raft("append_records_rate", "Entries a second, of the leader.", _append_rate),
    _of_raft("fetch_records_rate", "Entries a second, of a follower.", _fetch_rate),
    _of_raft("commit_latency_avg", "From proposal to commit, in ms.", _commit_latency),
    _of_channel("request", "Frames sent to voters.", lambda each: each.context.raft.traffic.frames_out),
    _of_channel("response", "Frames from voters.", lambda each: each.context.raft.traffic.frames_in),
    _of_channel("outgoing_byte", "Their bytes.", lambda each: each.context.raft.traffic.bytes_out),
    _of_channel("incoming_byte", "Their bytes.", lambda each: each.context.raft.traffic.bytes_in),
)  # fmt: skip

ROWS: Final = (*_CONTROLLER, *_RAFT)
