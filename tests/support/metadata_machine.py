"""A metadata state machine on a simulated disk, with commands as short as tests want them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from chaos.sim.disk import SimDisk
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.features import BOOTSTRAP_FEATURES
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from metadata_quorum.metadata.metadata_log import MetadataLog
from metadata_quorum.metadata.records import EndpointField
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol import stamped_command
from metadata_quorum.protocol.replies import BrokerRegistered, Refused
from metadata_quorum.protocol.stamped_command import StampedCommand

DIRECTORY = "/node/__cluster_metadata-0"


class MetadataMachine:
    """Feeds commands to a state machine as Raft would: committed, in order."""

    def __init__(self, disk: Disk | None = None, directory: str = DIRECTORY, **log_options: int) -> None:
        self.disk = disk if disk is not None else SimDisk()
        self.directory = directory
        self.machine = MetadataStateMachine(MetadataLog(self.disk, directory, **log_options))
        self.index = 0
        self.term = 1
        self.now_ms = 1_700_000_000_000
        self.history: list[tuple[int, int, bytes]] = []

    @property
    def image(self):
        return self.machine.image

    @property
    def log(self) -> MetadataLog:
        return self.machine.log

    def run(self, command: c.Command[object], epoch: int | None = None) -> object:
        """The reply; a refusal of the whole is raised."""
        self.index += 1
        self.now_ms += 1
        proposal = StampedCommand(self.term if epoch is None else epoch, self.now_ms, command)
        data = stamped_command.encode(proposal)
        self.history.append((self.index, self.term, data))
        reply = self.machine.apply(self.index, self.term, data)
        if isinstance(reply, Refused):
            raise BrokerError(reply.error, reply.message)
        return reply

    def claim(self, leader: int = 1, *, elr: bool = True, min_insync: int = 1) -> None:
        features = {k: v for k, v in BOOTSTRAP_FEATURES.items() if elr or not k.startswith("eligible")}
        self.run(
            c.ClaimLeadership(
                leader_id=leader,
                voters=(1, 2, 3),
                bootstrap_features=tuple(c.FeatureLevel(name=k, level=v) for k, v in features.items()),
                bootstrap_min_insync_replicas=min_insync,
            )
        )

    def register(
        self,
        broker: int,
        *,
        incarnation: int = 1,
        rack: str | None = None,
        previous: int = -1,
        log_dirs: Sequence[UUID] = (),
    ) -> int:
        known = self.image.brokers.get(broker)
        reply = self.run(
            c.RegisterBroker(
                broker_id=broker,
                incarnation_id=UUID(int=broker << 64 | incarnation),
                endpoints=(
                    EndpointField(
                        name="PLAINTEXT", host="localhost", port=9091 + broker, security_protocol=0
                    ),
                ),
                rack=rack,
                log_dirs=tuple(log_dirs),
                previous_broker_epoch=previous,
                replaces_epoch=known.broker_epoch if known else -1,
            )
        )
        assert isinstance(reply, BrokerRegistered)
        return reply.broker_epoch

    def epoch(self, broker: int) -> int:
        return self.image.brokers[broker].broker_epoch

    def fence(self, broker: int) -> None:
        self.run(c.FenceBroker(broker_id=broker, broker_epoch=self.epoch(broker)))

    def unfence(self, broker: int) -> None:
        self.run(c.UnfenceBroker(broker_id=broker, broker_epoch=self.epoch(broker)))

    def shut_down(self, broker: int) -> None:
        self.run(c.BeginControlledShutdown(broker_id=broker, broker_epoch=self.epoch(broker)))

    def brokers(self, *ids: int) -> None:
        """Registered and unfenced."""
        for broker in ids:
            self.register(broker)
            self.unfence(broker)

    def create(
        self, name: str, partitions: int = 1, replication: int = 1, *, start: int = 0, **configs: str
    ) -> object:
        return self.run(
            c.CreateTopics(
                topics=(
                    c.NewTopic(
                        name=name,
                        topic_id=UUID(int=1 << 100 | self.index),
                        partitions=partitions,
                        replication_factor=replication,
                        configs=entries(configs),
                        placement_start=start,
                    ),
                )
            )
        )

    def create_assigned(self, name: str, replicas: Sequence[Sequence[int]], **configs: str) -> object:
        return self.run(
            c.CreateTopics(
                topics=(
                    c.NewTopic(
                        name=name,
                        topic_id=UUID(int=1 << 100 | self.index),
                        partitions=-1,
                        replication_factor=-1,
                        assignments=tuple(
                            c.Assignment(partition=p, broker_ids=tuple(ids)) for p, ids in enumerate(replicas)
                        ),
                        configs=entries(configs),
                    ),
                )
            )
        )

    def partition(self, topic: str, partition: int = 0) -> PartitionRegistration:
        found = self.image.partition(TopicPartition(topic, partition))
        assert found is not None
        return found

    def isr_change(
        self, topic: str, isr: Sequence[int], partition: int = 0, *, recovering: int = 0
    ) -> c.IsrChange:
        now = self.partition(topic, partition)
        return c.IsrChange(
            topic_id=self.image.topics_by_name[topic].id,
            partition=partition,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=tuple(
                c.IsrMember(broker_id=b, broker_epoch=self.epoch(b) if b in self.image.brokers else -1)
                for b in isr
            ),
            leader_recovery_state=recovering,
        )

    def alter(self, broker: int, *changes: c.IsrChange) -> object:
        return self.run(c.AlterPartitions(broker_id=broker, broker_epoch=self.epoch(broker), changes=changes))

    def fail_dirs(self, broker: int, *offline: UUID) -> None:
        self.run(c.FailLogDirs(broker_id=broker, broker_epoch=self.epoch(broker), offline=offline))

    def assign_dir(self, broker: int, topic: str, directory: UUID, partition: int = 0) -> object:
        """Tell where a broker keeps a replica."""
        topic_id = self.image.topics_by_name[topic].id
        assignment = c.DirectoryAssignment(topic_id=topic_id, partition=partition, directory=directory)
        return self.run(
            c.AssignReplicasToDirs(
                broker_id=broker,
                broker_epoch=self.epoch(broker),
                assignments=(assignment,),
                asks_for_origin=True,
                may_be_unclean=True,
            )
        )

    def set_config(self, kind: int, resource: str, name: str, value: str | None) -> object:
        operation = c.CONFIG_DELETE if value is None else c.CONFIG_SET
        operations = (c.ConfigOperation(name=name, operation=operation, value=value),)
        change = c.ConfigChange(resource_type=kind, resource_name=resource, operations=operations)
        return self.run(c.IncrementalAlterConfigs(changes=(change,)))


def entries(configs: dict[str, str]) -> tuple[c.ConfigEntry, ...]:
    """`min_insync_replicas="2"` as Kafka spells it."""
    return tuple(c.ConfigEntry(name=k.replace("_", "."), value=v) for k, v in configs.items())
