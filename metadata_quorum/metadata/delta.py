"""What leads from one image to the next: records replayed on top of an image, and what they touched.

    MetadataImage + records --replay--> MetadataDelta --apply()--> the next MetadataImage

On the path of the data: controller/state_machine.py (from commands) and kraft/broker/metadata_follower.py
(from fetched batches) replay here, then hand (delta, image) to their subscribers, above all the publisher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar
from uuid import UUID

from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.foundation.model import (
    NO_LEADER,
    UNASSIGNED_DIR,
    BrokerRegistration,
    ControllerRegistration,
    PartitionRegistration,
    ResourceType,
)
from metadata_quorum.foundation.quota_types import QuotaEntityKey
from metadata_quorum.metadata.image import ConfigResource, MetadataImage, TopicImage
from metadata_quorum.metadata.records import (
    NO_LEADER_CHANGE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    endpoints_of,
    features_of,
)

K = TypeVar("K")
V = TypeVar("V")

_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


def merge_change(before: PartitionRegistration, change: PartitionChangeRecord) -> PartitionRegistration:
    """The partition after a change record: partition epoch + 1, leader epoch + 1 if it names a leader."""
    replicas = before.replicas if change.replicas is None else change.replicas
    if change.directories is not None:
        directories = change.directories
    elif change.replicas is not None:
        known = dict(zip(before.replicas, before.directories, strict=False))
        directories = tuple(known.get(replica, UNASSIGNED_DIR) for replica in replicas)
    else:
        directories = before.directories
    names_leader = change.leader != NO_LEADER_CHANGE

    def changed(new: tuple[int, ...] | None, old: tuple[int, ...]) -> tuple[int, ...]:
        return old if new is None else new

    return PartitionRegistration(
        replicas=replicas,
        isr=changed(change.isr, before.isr),
        leader=change.leader if names_leader else before.leader,
        leader_epoch=before.leader_epoch + 1 if names_leader else before.leader_epoch,
        partition_epoch=before.partition_epoch + 1,
        leader_recovery_state=(
            before.leader_recovery_state if change.leader_recovery_state < 0 else change.leader_recovery_state
        ),
        elr=changed(change.eligible_leader_replicas, before.elr),
        last_known_elr=changed(change.last_known_elr, before.last_known_elr),
        adding_replicas=changed(change.adding_replicas, before.adding_replicas),
        removing_replicas=changed(change.removing_replicas, before.removing_replicas),
        directories=directories,
    )


def check_partition(name: object, before: PartitionRegistration | None, after: PartitionRegistration) -> None:
    """The invariants of a partition's new state; `before` is None for a new partition."""
    if before is not None:
        invariant(
            after.partition_epoch > before.partition_epoch,
            Invariant.PARTITION_EPOCH_MONOTONIC,
            (name, before, after),
        )
        if after.leader != before.leader:
            invariant(
                after.leader_epoch > before.leader_epoch,
                Invariant.PARTITION_EPOCH_MONOTONIC,
                (name, before, after),
            )
    isr, replicas = set(after.isr), set(after.replicas)
    invariant(after.leader == NO_LEADER or after.leader in isr, Invariant.ISR_WELL_FORMED, (name, after))
    invariant(isr <= replicas and len(isr) == len(after.isr), Invariant.ISR_WELL_FORMED, (name, after))
    invariant(len(replicas) == len(after.replicas), Invariant.ISR_WELL_FORMED, (name, after))
    invariant(
        not isr & set(after.elr) and set(after.elr) <= replicas, Invariant.ISR_WELL_FORMED, (name, after)
    )


class MetadataDelta:
    """Records replayed on top of `image`, and what they touched."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.offset = image.offset
        self.epoch = image.epoch
        self.timestamp_ms = image.timestamp_ms
        self.created_topics: dict[UUID, str] = {}
        self.deleted_topics: dict[UUID, str] = {}
        """Topics of `image` that are gone; one that was created and deleted within is in neither."""
        self.changed_partitions: dict[UUID, dict[int, PartitionRegistration]] = {}
        """The current state of new or changed partitions, by topic id."""
        self.changed_brokers: dict[int, BrokerRegistration | None] = {}
        """None: unregistered."""
        self.changed_controllers: dict[int, ControllerRegistration] = {}
        self.changed_configs: dict[ConfigResource, dict[str, str]] = {}
        """All values of every resource of which one changed."""
        self.changed_features: dict[str, int] = {}
        self.changed_quotas: dict[QuotaEntityKey, dict[str, float]] = {}
        self.changed_acls: dict[UUID, AccessControlEntryRecord | None] = {}
        self.changed_scram: dict[tuple[str, int], UserScramCredentialRecord | None] = {}
        self.next_producer_id = image.next_producer_id

    @property
    def changed_topics(self) -> set[UUID]:
        """Topics that are new or have new or changed partitions."""
        return set(self.changed_partitions) | set(self.created_topics)

    @staticmethod
    def between(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
        """The difference between an image and the snapshot that replaces it."""
        delta = MetadataDelta(old)
        delta.offset, delta.epoch, delta.timestamp_ms = new.offset, new.epoch, new.timestamp_ms
        for topic_id, topic in new.topics_by_id.items():
            known = old.topics_by_id.get(topic_id)
            if known is None:
                delta.created_topics[topic_id] = topic.name
            partitions = {} if known is None else known.partitions
            changed = {p: reg for p, reg in topic.partitions.items() if partitions.get(p) != reg}
            if changed:
                delta.changed_partitions[topic_id] = changed
        delta.deleted_topics = {i: t.name for i, t in old.topics_by_id.items() if i not in new.topics_by_id}
        delta.changed_brokers = _changed(old.brokers, new.brokers)
        delta.changed_controllers = {k: v for k, v in new.controllers.items() if old.controllers.get(k) != v}
        delta.changed_configs = _changed_values(old.configs, new.configs)
        delta.changed_features = {
            name: new.features.get(name, 0)
            for name in old.features.keys() | new.features.keys()
            if old.features.get(name) != new.features.get(name)
        }
        delta.changed_quotas = _changed_values(old.quotas, new.quotas)
        delta.changed_acls = _changed(old.acls, new.acls)
        delta.changed_scram = _changed(old.scram, new.scram)
        delta.next_producer_id = new.next_producer_id
        return delta

    def replay(self, record: MetadataRecord) -> None:
        """Take one record in."""
        _REPLAY[type(record)](self, record)

    def apply(self) -> MetadataImage:
        """The image after everything replayed."""
        base = self.image
        by_name, by_id = self._topics()
        return MetadataImage(
            offset=self.offset,
            epoch=self.epoch,
            timestamp_ms=self.timestamp_ms,
            brokers=_merged(base.brokers, self.changed_brokers),
            controllers=_merged(base.controllers, self.changed_controllers),
            topics_by_name=by_name,
            topics_by_id=by_id,
            configs=_merged(base.configs, {k: v or None for k, v in self.changed_configs.items()}),
            features=_merged(base.features, {k: v or None for k, v in self.changed_features.items()}),
            next_producer_id=self.next_producer_id,
            quotas=_merged(base.quotas, {k: v or None for k, v in self.changed_quotas.items()}),
            acls=_merged(base.acls, self.changed_acls),
            scram=_merged(base.scram, self.changed_scram),
        )

    def partition(self, topic_id: UUID, partition_id: int) -> PartitionRegistration | None:
        """A partition after what was replayed so far."""
        changed = self.changed_partitions.get(topic_id, _EMPTY).get(partition_id)
        if changed is not None or topic_id in self.deleted_topics:
            return changed
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)

    def topic_name(self, topic_id: UUID) -> str | None:
        name = self.created_topics.get(topic_id)
        if name is None and topic_id not in self.deleted_topics:
            topic = self.image.topics_by_id.get(topic_id)
            name = None if topic is None else topic.name
        return name

    def _topics(self) -> tuple[Mapping[str, TopicImage], Mapping[UUID, TopicImage]]:
        base = self.image
        if not (self.changed_partitions or self.created_topics or self.deleted_topics):
            return base.topics_by_name, base.topics_by_id
        by_name, by_id = dict(base.topics_by_name), dict(base.topics_by_id)
        for topic_id, name in self.deleted_topics.items():
            del by_id[topic_id]
            del by_name[name]
        for topic_id in self.changed_topics:
            known = by_id.get(topic_id)
            name = self.created_topics[topic_id] if known is None else known.name
            partitions = {} if known is None else dict(known.partitions)
            partitions.update(self.changed_partitions.get(topic_id, _EMPTY))
            by_name[name] = by_id[topic_id] = TopicImage(name, topic_id, partitions)
        return by_name, by_id

    def _broker(self, broker_id: int) -> BrokerRegistration:
        broker = self.changed_brokers.get(broker_id, self.image.brokers.get(broker_id))
        if broker is None:
            raise ValueError(f"metadata log changes broker {broker_id}, which is not registered")
        return broker

    # -- one method per kind of record ----------------------------------------

    def _register_broker(self, r: RegisterBrokerRecord) -> None:
        self.changed_brokers[r.broker_id] = BrokerRegistration(
            broker_id=r.broker_id,
            broker_epoch=r.broker_epoch,
            incarnation_id=r.incarnation_id,
            endpoints=endpoints_of(r.end_points),
            features=features_of(r.features),
            rack=r.rack,
            fenced=r.fenced,
            in_controlled_shutdown=r.in_controlled_shutdown,
            log_dirs=r.log_dirs,
        )

    def _unregister_broker(self, r: UnregisterBrokerRecord) -> None:
        self._broker(r.broker_id)
        self.changed_brokers[r.broker_id] = None

    def _fence(self, r: FenceBrokerRecord) -> None:
        self.changed_brokers[r.id] = replace(self._broker(r.id), fenced=True)

    def _unfence(self, r: UnfenceBrokerRecord) -> None:
        self.changed_brokers[r.id] = replace(self._broker(r.id), fenced=False)

    def _change_broker(self, r: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(r.broker_id)
        self.changed_brokers[r.broker_id] = replace(
            broker,
            fenced=broker.fenced if r.fenced == 0 else r.fenced > 0,
            in_controlled_shutdown=broker.in_controlled_shutdown or r.in_controlled_shutdown > 0,
            log_dirs=r.log_dirs or broker.log_dirs,
        )

    def _register_controller(self, r: RegisterControllerRecord) -> None:
        self.changed_controllers[r.controller_id] = ControllerRegistration(
            controller_id=r.controller_id,
            incarnation_id=r.incarnation_id,
            zk_migration_ready=r.zk_migration_ready,
            endpoints=endpoints_of(r.end_points),
            features=features_of(r.features),
        )

    def _topic(self, r: TopicRecord) -> None:
        self.created_topics[r.topic_id] = r.name

    def _remove_topic(self, r: RemoveTopicRecord) -> None:
        name = self.topic_name(r.topic_id)
        if name is None:
            raise ValueError(f"metadata log removes topic {r.topic_id}, which does not exist")
        if r.topic_id in self.image.topics_by_id:
            self.deleted_topics[r.topic_id] = name
        self.created_topics.pop(r.topic_id, None)
        self.changed_partitions.pop(r.topic_id, None)
        resource = (int(ResourceType.TOPIC), name)
        if resource in self.changed_configs or resource in self.image.configs:
            self.changed_configs[resource] = {}

    def _partition(self, r: PartitionRecord) -> None:
        if self.topic_name(r.topic_id) is None:
            raise ValueError(f"metadata log has a partition of topic {r.topic_id}, which does not exist")
        self.changed_partitions.setdefault(r.topic_id, {})[r.partition_id] = PartitionRegistration(
            replicas=r.replicas,
            isr=r.isr,
            leader=r.leader,
            leader_epoch=r.leader_epoch,
            partition_epoch=r.partition_epoch,
            leader_recovery_state=r.leader_recovery_state,
            elr=r.eligible_leader_replicas or (),
            last_known_elr=r.last_known_elr or (),
            adding_replicas=r.adding_replicas,
            removing_replicas=r.removing_replicas,
            directories=r.directories or (UNASSIGNED_DIR,) * len(r.replicas),
        )

    def _change_partition(self, r: PartitionChangeRecord) -> None:
        before = self.partition(r.topic_id, r.partition_id)
        if before is None:
            raise ValueError(
                f"metadata log changes partition {r.topic_id}:{r.partition_id}, which is unknown"
            )
        self.changed_partitions.setdefault(r.topic_id, {})[r.partition_id] = merge_change(before, r)

    def _clear_elr(self, r: ClearElrRecord) -> None:
        for topic in self.image.topics_by_id.values():
            if r.topic_name and topic.name != r.topic_name:
                continue
            for partition_id in topic.partitions:
                now = self.partition(topic.id, partition_id)
                if now is not None and (now.elr or now.last_known_elr):
                    cleared = replace(now, elr=(), last_known_elr=())
                    self.changed_partitions.setdefault(topic.id, {})[partition_id] = cleared

    def _config(self, r: ConfigRecord) -> None:
        resource = (r.resource_type, r.resource_name)
        values = _values_to_change(self.changed_configs, self.image.configs, resource)
        if r.value is None:
            values.pop(r.name, None)
        else:
            values[r.name] = r.value

    def _feature(self, r: FeatureLevelRecord) -> None:
        self.changed_features[r.name] = r.feature_level

    def _producer_ids(self, r: ProducerIdsRecord) -> None:
        self.next_producer_id = r.next_producer_id

    def _quota(self, r: ClientQuotaRecord) -> None:
        key = tuple(sorted((e.entity_type, e.entity_name) for e in r.entity))
        values = _values_to_change(self.changed_quotas, self.image.quotas, key)
        if r.remove:
            values.pop(r.key, None)
        else:
            values[r.key] = r.value

    def _acl(self, r: AccessControlEntryRecord) -> None:
        self.changed_acls[r.id] = r

    def _remove_acl(self, r: RemoveAccessControlEntryRecord) -> None:
        self.changed_acls[r.id] = None

    def _scram(self, r: UserScramCredentialRecord) -> None:
        self.changed_scram[(r.name, r.mechanism)] = r

    def _remove_scram(self, r: RemoveUserScramCredentialRecord) -> None:
        self.changed_scram[(r.name, r.mechanism)] = None

    def _nothing(self, r: MetadataRecord) -> None:
        """Moves the offset only."""


_REPLAY: Final[Mapping[type[MetadataRecord], Callable[[MetadataDelta, Any], None]]] = {
    RegisterBrokerRecord: MetadataDelta._register_broker,
    UnregisterBrokerRecord: MetadataDelta._unregister_broker,
    FenceBrokerRecord: MetadataDelta._fence,
    UnfenceBrokerRecord: MetadataDelta._unfence,
    BrokerRegistrationChangeRecord: MetadataDelta._change_broker,
    RegisterControllerRecord: MetadataDelta._register_controller,
    TopicRecord: MetadataDelta._topic,
    RemoveTopicRecord: MetadataDelta._remove_topic,
    PartitionRecord: MetadataDelta._partition,
    PartitionChangeRecord: MetadataDelta._change_partition,
    ClearElrRecord: MetadataDelta._clear_elr,
    ConfigRecord: MetadataDelta._config,
    FeatureLevelRecord: MetadataDelta._feature,
    ProducerIdsRecord: MetadataDelta._producer_ids,
    ClientQuotaRecord: MetadataDelta._quota,
    AccessControlEntryRecord: MetadataDelta._acl,
    RemoveAccessControlEntryRecord: MetadataDelta._remove_acl,
    UserScramCredentialRecord: MetadataDelta._scram,
    RemoveUserScramCredentialRecord: MetadataDelta._remove_scram,
    NoOpRecord: MetadataDelta._nothing,
    BeginTransactionRecord: MetadataDelta._nothing,
    EndTransactionRecord: MetadataDelta._nothing,
    AbortTransactionRecord: MetadataDelta._nothing,
}


def _merged(base: Mapping[K, V], changes: Mapping[K, V | None]) -> Mapping[K, V]:
    """`base` with the changes in it; None removes. `base` itself where there are none."""
    if not changes:
        return base
    merged = dict(base)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def _changed(old: Mapping[K, V], new: Mapping[K, V]) -> dict[K, V | None]:
    """What must be merged into `old` to get `new`."""
    changes: dict[K, V | None] = {key: value for key, value in new.items() if old.get(key) != value}
    changes.update((key, None) for key in old if key not in new)
    return changes


def _changed_values(
    old: Mapping[K, Mapping[str, V]], new: Mapping[K, Mapping[str, V]]
) -> dict[K, dict[str, V]]:
    """All values of every resource of which one changed; none where it has no values any more."""
    return {
        key: dict(new.get(key, _EMPTY))
        for key in old.keys() | new.keys()
        if old.get(key, _EMPTY) != new.get(key, _EMPTY)
    }


def _values_to_change(
    changed: dict[K, dict[str, V]], base: Mapping[K, Mapping[str, V]], key: K
) -> dict[str, V]:
    """The values of a resource after what was replayed so far, in `changed`."""
    values = changed.get(key)
    if values is None:
        values = changed[key] = dict(base.get(key, _EMPTY))
    return values
