"""UpdateFeatures: finalized levels are raised and lowered, if every node can run them.

All updates of a request are applied, or none. What depends on a metadata.version needs no check: all levels
that can be reached from a new cluster's have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from metadata_quorum.decisions.decision import Decision
from metadata_quorum.decisions.elections import MIN_INSYNC_REPLICAS
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import ELR_VERSION, KNOWS_CONTROLLERS, METADATA_VERSION
from metadata_quorum.foundation.model import NO_LEADER, FeatureRange, ResourceType
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import ConfigRecord, FeatureLevelRecord, PartitionChangeRecord
from metadata_quorum.protocol.commands import FeatureUpdate, UpdateFeatures

OLDEST_SAME_RECORDS: Final = 23
"""4.0-IV1: the last metadata.version up to 27 that brought new records. Below, some could not be kept."""

Ranges = dict[str, tuple[int, int]]

_FOR_ALL: Final = "The update failed for all features since the following feature had an error: "


class UpgradeType(IntEnum):
    """What the client allows."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(image: MetadataImage, command: UpdateFeatures) -> Decision:
    """Raises `BrokerError`, INVALID_UPDATE_VERSION, if one of them is not possible."""
    decision = Decision()
    updates = {update.name: update for update in command.updates}  # of two for one feature the later counts
    nodes = list(_nodes(image, command))
    for update in updates.values():
        problem = _problem(image, nodes, update)
        if problem is not None:
            raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, _FOR_ALL + problem)
        if update.level != image.features.get(update.name, 0):
            decision.records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    elr = updates.get(ELR_VERSION)
    if elr is not None and elr.level > 0 and command.min_insync_replicas > 0:
        decision.records += _one_min_insync(image, command.min_insync_replicas)
    if elr is not None and elr.level > image.features.get(ELR_VERSION, 0) and command.takes_leaderless:
        decision.records += _leaderless_to_elr(image)
    return decision


def check_voters(image: MetadataImage, command: UpdateFeatures, voters: Iterable[int]) -> None:
    """For the controller, before it proposes the command: what a voter can run that has not registered is not
    known. Not a part of the decision, which voters of every version make alike; it is as good before, for a
    voter that has registered stays so. Raises `BrokerError`, INVALID_UPDATE_VERSION."""
    if image.features.get(METADATA_VERSION, 0) < KNOWS_CONTROLLERS:
        return  # none can register
    unknown = [voter for voter in voters if voter != command.controller_id and not _is_known(image, voter)]
    if not unknown or not command.updates:
        return
    first = {update.name: update for update in command.updates}[command.updates[0].name]
    if _not_runnable(list(_nodes(image, command)), first) is None:  # else the decision says it
        why = f"controller {unknown[0]} has not registered, and may not support this feature"
        raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, _FOR_ALL + _invalid(first) + why)


def _is_known(image: MetadataImage, voter: int) -> bool:
    """Whether the levels that it can run are known."""
    registration = image.controllers.get(voter)
    return registration is not None and bool(registration.features)


def _leaderless_to_elr(image: MetadataImage) -> Iterator[PartitionChangeRecord]:
    """Without ELR the last member stays in an ISR that has no leader, and leads again however it comes back.
    With ELR it is eligible, and the last known leader: otherwise an unclean restart would take it out of the
    ISR, and nobody would be waited for any more."""
    for topic, partition_id, partition in image.each_partition():
        if partition.leader == NO_LEADER and partition.isr:
            eligible = {*partition.isr, *partition.elr}
            yield PartitionChangeRecord(
                partition_id=partition_id,
                topic_id=topic.id,
                isr=(),
                eligible_leader_replicas=tuple(r for r in partition.replicas if r in eligible),
                last_known_elr=partition.isr if len(partition.isr) == 1 else (),
            )


def _one_min_insync(image: MetadataImage, proposers: int) -> Iterator[ConfigRecord]:
    """ELR rests on it that a leader acknowledges nothing while the controller finds the ISR too small: both
    go by one committed min.insync.replicas, and no broker has another (configs.py keeps it so)."""
    kind, name = ResourceType.BROKER, MIN_INSYNC_REPLICAS
    if name not in image.config(kind, ""):
        yield ConfigRecord(resource_type=kind, resource_name="", name=name, value=str(proposers))
    for of, broker in sorted(image.configs):
        if of == kind and broker and name in image.config(of, broker):
            yield ConfigRecord(resource_type=kind, resource_name=broker, name=name, value=None)


def _problem(image: MetadataImage, nodes: list[tuple[str, Ranges]], update: FeatureUpdate) -> str | None:
    name, level = update.name, update.level
    invalid = _invalid(update)
    present = image.features.get(name, 0)
    problem = _not_runnable(nodes, update)
    if problem is not None:
        return problem
    if level < present and update.upgrade_type == UpgradeType.UPGRADE:
        return invalid + (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > present and update.upgrade_type != UpgradeType.UPGRADE:
        return invalid + "Can't downgrade to a newer version."
    if name == METADATA_VERSION and level < min(present, OLDEST_SAME_RECORDS):
        unsafe = update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
        return f"Invalid metadata.version {level}. " + (
            "Unsafe metadata downgrade is not supported in this version."
            if unsafe
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
    return None


def _invalid(update: FeatureUpdate) -> str:
    return f"Invalid update version {update.level} for feature {update.name}. "


def _not_runnable(nodes: list[tuple[str, Ranges]], update: FeatureUpdate) -> str | None:
    """Why it is no level that all nodes can run, or no update at all."""
    if update.upgrade_type not in UpgradeType.__members__.values():
        return _invalid(update) + "The controller does not support the given upgrade type."
    if update.level < 0:
        return _invalid(update) + "A feature version cannot be less than 0."
    for node, features in nodes:
        low, high = features.get(update.name, (0, 0))
        if not low <= update.level <= high:
            runs = f"only supports versions {low}-{high}" if high else "does not support this feature."
            return f"{_invalid(update)}{node} {runs}"
    return None


def _nodes(image: MetadataImage, command: UpdateFeatures) -> Iterator[tuple[str, Ranges]]:
    """Every node that has to run the new levels, with the levels that it supports: the proposer first."""
    supported = tuple(
        FeatureRange(each.name, each.min_supported_version, each.max_supported_version)
        for each in command.supported
    )
    yield f"Local controller {command.controller_id}", _ranges(supported)
    for kind, nodes in (("Broker", image.brokers), ("Controller", image.controllers)):
        for node_id in sorted(nodes):
            if nodes[node_id].features:  # a node without any is not checked
                yield f"{kind} {node_id}", _ranges(nodes[node_id].features)


def _ranges(features: tuple[FeatureRange, ...]) -> Ranges:
    return {each.name: (each.min_supported_version, each.max_supported_version) for each in features}
