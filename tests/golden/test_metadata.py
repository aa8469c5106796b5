"""Elections, ISR, ELR and reassignments: commands to the controller, and what they change in the metadata.

    cluster [no-elr]                        a cluster without brokers
    brokers ID… | register ID clean|unclean | unregister ID
    fence ID | unfence ID | shut-down ID
    create TOPIC REPLICAS/REPLICAS… [CONFIG=VALUE…] | delete TOPIC
    grow TOPIC COUNT | config TOPIC NAME=VALUE
    isr ID TOPIC ISR [FIELD=DIFFERENCE…]    AlterPartition of partition 0, as it should be or bent
    reassign TOPIC REPLICAS|cancel [same-size]
    elect preferred|unclean TOPIC | elr 0|1 (the level of the feature)

A command that the controller refuses prints `refused`, one that is refused for a partition `error`.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import ELR_VERSION
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import FeatureField
from metadata_quorum.protocol import commands as c
from tests.golden.scenario_runner import run_commands, scenarios
from tests.support.metadata_machine import MetadataMachine


class Scenario:
    def __init__(self) -> None:
        self.machine = MetadataMachine()
        self.lines: list[str] = []
        self.replicas: dict[tuple[UUID, int], tuple[int, ...]] = {}
        self.machine.machine.subscribe(self._note)

    def execute(self, command: str) -> list[str]:
        self.lines = []
        name, *words = command.split()
        try:
            reply = getattr(self, "do_" + name.replace("-", "_"))(*words)
        except BrokerError as e:
            return [f"refused: {e.code.name}"]
        return self.lines + (reply or []) or ["nothing changes"]

    def _note(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for broker_id, broker in delta.changed_brokers.items():
            if broker is None:
                self.lines.append(f"broker {broker_id} unregistered")
                continue
            state = "fenced" if broker.fenced else "unfenced"
            if broker.in_controlled_shutdown:
                state += ", shutting down"
            self.lines.append(f"broker {broker_id} {state}")
        for topic_id, partitions in delta.changed_partitions.items():
            for number, p in partitions.items():
                line = f"{image.topics_by_id[topic_id].name}-{number} leader {p.leader} isr {_ids(p.isr)}"
                if p.replicas != self.replicas.get((topic_id, number), p.replicas) or p.reassigning:
                    line += f" replicas {_ids(p.replicas)}"
                if p.reassigning:
                    line += f" adding {_ids(p.adding_replicas)} removing {_ids(p.removing_replicas)}"
                self.replicas[topic_id, number] = p.replicas
                if p.elr or p.last_known_elr:
                    line += f" elr {_ids(p.elr)} last {_ids(p.last_known_elr)}"
                line += f" leader-epoch {p.leader_epoch} partition-epoch {p.partition_epoch}"
                if p.leader_recovery_state:
                    line += " RECOVERING"
                self.lines.append(line)

    def do_cluster(self, *words: str) -> None:
        self.machine.claim(elr="no-elr" not in words)
        self.lines = []

    def do_brokers(self, *ids: str) -> None:
        self.machine.brokers(*map(int, ids))

    def do_create(self, topic: str, replicas: str, *configs: str) -> list[str] | None:
        pairs = dict(config.split("=") for config in configs)
        assigned = [[int(b) for b in p.split(",")] for p in replicas.split("/")]
        return _errors(self.machine.create_assigned(topic, assigned, **pairs))

    def do_register(self, broker: str, how: str) -> None:
        """clean: it shows the epoch that it stopped with."""
        known = self.machine.image.brokers.get(int(broker))
        previous = known.broker_epoch if known and how == "clean" else -1
        self.machine.register(int(broker), incarnation=self.machine.index, previous=previous)

    def do_fence(self, broker: str) -> None:
        self.machine.fence(int(broker))

    def do_unfence(self, broker: str) -> None:
        self.machine.unfence(int(broker))

    def do_shut_down(self, broker: str) -> None:
        self.machine.shut_down(int(broker))

    def do_unregister(self, broker: str) -> None:
        self.machine.run(c.UnregisterBroker(broker_id=int(broker)))

    def do_isr(self, broker: str, topic: str, isr: str, *how: str) -> list[str] | None:
        """`broker` asks for an ISR of topic's partition 0; `how` bends the request."""
        change = self.machine.isr_change(topic, [int(b) for b in isr.split(",")])
        fields = {name: getattr(change, name) for name in change.__slots__}
        for bend in how:
            name, _, amount = bend.partition("=")
            if name == "broker-epochs":
                fields["isr"] = tuple(
                    c.IsrMember(broker_id=m.broker_id, broker_epoch=m.broker_epoch + int(amount))
                    for m in change.isr
                )
            elif name == "recovering":
                fields["leader_recovery_state"] = 1
            else:
                name = name.replace("-", "_")
                fields[name] += int(amount)
        return _errors(self.machine.alter(int(broker), c.IsrChange(**fields)))

    def do_reassign(self, topic: str, replicas: str, *how: str) -> list[str] | None:
        """Partition 0 to `replicas`; `cancel` calls it off. `same-size`: with as many as there are."""
        target = None if replicas == "cancel" else tuple(int(b) for b in replicas.split(",") if b != "-")
        wanted = c.Reassignment(topic=topic, partition=0, replicas=target)
        return _errors(
            self.machine.run(
                c.AlterReassignments(
                    reassignments=(wanted,), allow_replication_factor_change="same-size" not in how
                )
            )
        )

    def do_delete(self, topic: str) -> None:
        self.machine.run(c.DeleteTopics(topic_ids=(self.machine.image.topics_by_name[topic].id,)))

    def do_grow(self, topic: str, count: str) -> list[str] | None:
        growth = c.NewPartitions(name=topic, count=int(count))
        return _errors(self.machine.run(c.CreatePartitions(topics=(growth,))))

    def do_elect(self, kind: str, topic: str) -> list[str] | None:
        election = c.ELECTION_PREFERRED if kind == "preferred" else c.ELECTION_UNCLEAN
        names = (c.PartitionName(topic=topic, partition=0),)
        return _errors(self.machine.run(c.ElectLeaders(election_type=election, partitions=names)))

    def do_elr(self, level: str) -> None:
        """The feature is turned off (0) or on (1)."""
        feature = c.FeatureUpdate(name=ELR_VERSION, level=int(level), upgrade_type=1 if int(level) else 2)
        runs = FeatureField(name=ELR_VERSION, min_supported_version=0, max_supported_version=1)
        self.machine.run(
            c.UpdateFeatures(controller_id=1, updates=(feature,), supported=(runs,), takes_leaderless=True)
        )

    def do_config(self, topic: str, pair: str) -> list[str] | None:
        name, _, value = pair.partition("=")
        return _errors(self.machine.set_config(ResourceType.TOPIC, topic, name, value))


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"


def _errors(results: object) -> list[str] | None:
    assert isinstance(results, tuple)
    return [f"error: {r.error.name}" for r in results if r.error is not ErrorCode.NONE] or None


@pytest.mark.row("Q2", "Q4", "Q5", "Q11", "R9", "R10")
@pytest.mark.parametrize("path", scenarios("metadata"))
def test_metadata_changes_as_written(path: Path) -> None:
    run_commands(path, Scenario().execute)
