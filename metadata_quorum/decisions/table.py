"""Which function decides a command, and which one weighs it: one row per command.

state_machine.py -> weigh: on the loop, or beside it? -> decide -> records and a reply
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from metadata_quorum.decisions import (
    acls,
    brokers,
    client_quotas,
    configs,
    directories,
    elections,
    features,
    isr,
    producer_ids,
    reassignments,
    scram,
    topics,
    weights,
)
from metadata_quorum.decisions.decision import Decision
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.protocol import commands as c

CommandT = TypeVar("CommandT", bound=c.Command[object])


class Row(NamedTuple):
    """Both functions take the image that the command is decided on, and a command of the row's type."""

    decide: Callable[[MetadataImage, Any], Decision]
    weight: Callable[[MetadataImage, Any], int]


def _row(
    command: type[CommandT],
    decide: Callable[[MetadataImage, CommandT], Decision],
    weight: Callable[[MetadataImage, CommandT], int],
) -> tuple[type[c.Command[object]], Row]:
    """The type checker sees here that all three agree; `Row` cannot say it."""
    return command, Row(decide, weight)


ROWS: Final = dict(
    (
        _row(c.ClaimLeadership, brokers.claim, weights.claim),
        _row(c.RegisterController, brokers.register_controller, weights.nothing_more),
        _row(c.RegisterBroker, brokers.register_broker, weights.all_partitions),
        _row(c.UnregisterBroker, brokers.unregister_broker, weights.all_partitions),
        _row(c.FenceBroker, brokers.fence_broker, weights.all_partitions),
        _row(c.UnfenceBroker, brokers.unfence_broker, weights.all_partitions),
        _row(c.BeginControlledShutdown, brokers.begin_controlled_shutdown, weights.all_partitions),
        _row(c.FailLogDirs, directories.fail_log_dirs, weights.all_partitions),
        _row(c.AssignReplicasToDirs, directories.assign_replicas, weights.assign_replicas),
        _row(c.CreateTopics, topics.create_topics, weights.create_topics),
        _row(c.DeleteTopics, topics.delete_topics, weights.delete_topics),
        _row(c.CreatePartitions, topics.create_partitions, weights.create_partitions),
        _row(c.AlterPartitions, isr.alter_partitions, weights.alter_partitions),
        _row(c.ElectLeaders, elections.elect_leaders, weights.elect_leaders),
        _row(c.AlterReassignments, reassignments.alter_reassignments, weights.alter_reassignments),
        _row(c.IncrementalAlterConfigs, configs.incremental_alter_configs, weights.incremental_alter_configs),
        _row(c.AlterConfigs, configs.alter_configs, weights.alter_configs),
        _row(c.AllocateProducerIds, producer_ids.allocate_producer_ids, weights.nothing_more),
        _row(c.AlterClientQuotas, client_quotas.alter_client_quotas, weights.alter_client_quotas),
        _row(c.UpdateFeatures, features.update_features, weights.update_features),
        _row(c.AlterUserScram, scram.alter_user_scram, weights.alter_user_scram),
        _row(c.CreateAcls, acls.create_acls, weights.create_acls),
        _row(c.DeleteAcls, acls.delete_acls, weights.delete_acls),
    )
)


def decide(image: MetadataImage, command: c.Command[object]) -> Decision:
    """Decide a command on `image`. Raises `BrokerError` where the whole command is refused."""
    return ROWS[type(command)].decide(image, command)


def weight(image: MetadataImage, command: c.Command[object]) -> int:
    """The weight of `command` when it is decided on `image`; QUICK_WEIGHT takes some 15 ms."""
    return weights.any_command(image) + ROWS[type(command)].weight(image, command)
