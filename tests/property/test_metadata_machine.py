"""Random commands: the invariants of partitions hold after each; every way to a state is the same state."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_quorum.decisions.elections import rules_of
from metadata_quorum.foundation.batch import check_crc, decode_batch, iter_headers
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import Invariant
from metadata_quorum.foundation.model import (
    NO_LEADER,
    LeaderRecoveryState,
    PartitionRegistration,
    ResourceType,
)
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import (
    AccessControlEntryRecord,
    QuotaEntity,
    UserScramCredentialRecord,
    decode,
)
from metadata_quorum.metadata.snapshot import decode_checkpoint, encode_checkpoint
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol import stamped_command
from tests.support.metadata_machine import MetadataMachine
from tests.support.suite.examples import examples

BROKERS = (1, 2, 3, 4)
OF_BROKERS = (
    c.RegisterBroker,
    c.FenceBroker,
    c.UnfenceBroker,
    c.BeginControlledShutdown,
    c.FailLogDirs,
    c.AssignReplicasToDirs,
    c.AlterPartitions,
    c.AllocateProducerIds,
)
TOPICS = ("a", "b")


def _directory(broker: int, number: int) -> UUID:
    return UUID(int=1000 * broker + number)


class Chaos:
    """Draws commands from a seed and watches the invariants."""

    def __init__(self, seed: int, *, elr: bool) -> None:
        self.random = Random(seed)
        self.elr = elr
        self.machine = MetadataMachine()
        self.leaders: dict[tuple[UUID, int, int], int] = {}
        self.machine.claim(elr=elr)

    def step(self) -> None:
        before = self.machine.image
        broker, topic = self.random.choice(BROKERS), self.random.choice(TOPICS)
        actions = (
            self._create, self._delete, self._register, self._fence, self._unfence, self._unfence,
            self._fail_dir, self._assign_dir, self._assign_dir,
            self._reassign, self._reassign, self._join,
            self._shut_down, self._alter, self._alter, self._elect, self._config, self._grow, self._claim,
            self._acls, self._quotas, self._users, self._all_configs, self._forget, self._producer_ids,
            self._late_copy, self._late_copy,
        )  # fmt: skip
        try:
            self.random.choice(actions)(broker, topic)
        except BrokerError as e:
            if e.code is ErrorCode.UNKNOWN_SERVER_ERROR or self.machine.image is not before:
                raise
        self.check(before, self.machine.image)

    def _create(self, broker: int, topic: str) -> None:
        configs = {"min_insync_replicas": str(self.random.randint(1, 3))}
        if self.random.random() < 0.3:
            configs["unclean_leader_election_enable"] = "true"
        start = self.random.randrange(100)
        self.machine.create(
            topic, self.random.randint(1, 3), self.random.randint(1, 4), start=start, **configs
        )

    def _delete(self, broker: int, topic: str) -> None:
        known = self.machine.image.topics_by_name.get(topic)
        if known is not None and self.random.random() < 0.2:
            self.machine.run(c.DeleteTopics(topic_ids=(known.id,)))

    def _register(self, broker: int, topic: str) -> None:
        known = self.machine.image.brokers.get(broker)
        previous = known.broker_epoch if known and self.random.random() < 0.5 else -1
        dirs = [_directory(broker, n) for n in self.random.sample(range(3), 2)]  # a disk may be a new one
        self.machine.register(broker, incarnation=self.machine.index, previous=previous, log_dirs=dirs)

    def _fail_dir(self, broker: int, topic: str) -> None:
        if broker in self.machine.image.brokers:
            self.machine.fail_dirs(broker, _directory(broker, self.random.randrange(3)))

    def _assign_dir(self, broker: int, topic: str) -> None:
        image = self.machine.image
        if broker in image.brokers and topic in image.topics_by_name:
            directory = _directory(broker, self.random.randrange(3))
            self.machine.assign_dir(broker, topic, directory, self.random.randrange(2))

    def _epoch(self, broker: int) -> int:
        known = self.machine.image.brokers.get(broker)
        return known.broker_epoch - (self.random.random() < 0.05) if known else 5

    def _fence(self, broker: int, topic: str) -> None:
        self.machine.run(c.FenceBroker(broker_id=broker, broker_epoch=self._epoch(broker)))

    def _unfence(self, broker: int, topic: str) -> None:
        self.machine.run(c.UnfenceBroker(broker_id=broker, broker_epoch=self._epoch(broker)))

    def _shut_down(self, broker: int, topic: str) -> None:
        self.machine.run(c.BeginControlledShutdown(broker_id=broker, broker_epoch=self._epoch(broker)))

    def _alter(self, broker: int, topic: str) -> None:
        known = self.machine.image.topics_by_name.get(topic)
        if known is None:
            return
        number = self.random.choice(list(known.partitions))
        partition = known.partitions[number]
        members = [b for b in partition.replicas if self.random.random() < 0.7]
        if partition.leader not in members and self.random.random() < 0.9:
            members.append(partition.leader)
        requester = partition.leader if self.random.random() < 0.9 else broker
        change = self.machine.isr_change(topic, members, number, recovering=self.random.random() < 0.1)
        self.machine.run(
            c.AlterPartitions(broker_id=requester, broker_epoch=self._epoch(requester), changes=(change,))
        )

    def _join(self, broker: int, topic: str) -> None:
        """The leader asks for all who may join: what ends reassignments."""
        known = self.machine.image.topics_by_name.get(topic)
        if known is None:
            return
        number = self.random.choice(list(known.partitions))
        partition = known.partitions[number]
        if partition.leader != NO_LEADER:
            members = [r for r in partition.replicas if self.machine.image.can_serve(r, partition)]
            self.machine.alter(partition.leader, self.machine.isr_change(topic, members, number))

    def _reassign(self, broker: int, topic: str) -> None:
        number = self.random.randrange(3)
        target = tuple(self.random.sample(BROKERS, self.random.randint(1, 4)))
        replicas = None if self.random.random() < 0.3 else target
        wanted = c.Reassignment(topic=topic, partition=number, replicas=replicas)
        self.machine.run(
            c.AlterReassignments(
                reassignments=(wanted,),
                allow_replication_factor_change=self.random.random() < 0.7,
                may_be_unclean=True,
            )
        )

    def _elect(self, broker: int, topic: str) -> None:
        names = tuple(c.PartitionName(topic=topic, partition=p) for p in range(3))
        self.machine.run(c.ElectLeaders(election_type=self.random.randint(0, 1), partitions=names))

    def _config(self, broker: int, topic: str) -> None:
        value = self.random.choice([None, "1", "2", "3", "zero"])
        kind, name = self.random.choice([(ResourceType.TOPIC, topic), (ResourceType.BROKER, "")])
        self.machine.set_config(kind, name, "min.insync.replicas", value)

    def _grow(self, broker: int, topic: str) -> None:
        growth = c.NewPartitions(name=topic, count=self.random.randint(1, 4), placement_start=broker)
        self.machine.run(c.CreatePartitions(topics=(growth,)))

    def _claim(self, broker: int, topic: str) -> None:
        self.machine.term += 1
        self.machine.claim(self.random.choice((1, 2, 3)), elr=self.elr)

    def _acls(self, broker: int, topic: str) -> None:
        if self.random.random() < 0.7:
            entries = (
                AccessControlEntryRecord(
                    id=UUID(int=self.random.getrandbits(128)), resource_type=2, resource_name=topic,
                    pattern_type=3, principal=f"User:{self.random.randrange(9)}", host="*",
                    operation=self.random.randint(3, 5), permission_type=3,
                )
                for _ in range(3)
            )  # fmt: skip
            self.machine.run(c.CreateAcls(acls=tuple(entries)))
            return
        wanted = c.AclFilter(
            resource_type=2, resource_name=topic, pattern_type=1, principal=None, host=None,
            operation=self.random.randint(3, 5), permission_type=1,
        )  # fmt: skip
        self.machine.run(c.DeleteAcls(filters=(wanted,)))

    def _quotas(self, broker: int, topic: str) -> None:
        entity = (QuotaEntity(entity_type="user", entity_name=f"u{self.random.randrange(4)}"),)
        keys = self.random.sample(["producer_byte_rate", "consumer_byte_rate", "request_percentage"], 2)
        operations = tuple(
            c.QuotaOperation(key=key, value=float(broker), remove=self.random.random() < 0.3) for key in keys
        )
        self.machine.run(
            c.AlterClientQuotas(alterations=(c.QuotaAlteration(entity=entity, operations=operations),))
        )

    def _users(self, broker: int, topic: str) -> None:
        name = f"u{self.random.randrange(4)}"
        user = UserScramCredentialRecord(
            name=name, mechanism=1, salt=b"s", stored_key=b"k" * 32, server_key=b"k" * 32, iterations=4096
        )
        if self.random.random() < 0.7:
            self.machine.run(c.AlterUserScram(upsertions=(user,)))
        else:
            self.machine.run(c.AlterUserScram(deletions=(c.ScramDeletion(name=name, mechanism=1),)))

    def _all_configs(self, broker: int, topic: str) -> None:
        names = self.random.sample(["cleanup.policy", "retention.ms", "segment.bytes", "flush.messages"], 2)
        values = {"cleanup.policy": "compact", "retention.ms": "9", "segment.bytes": "2000000"}
        configs = tuple(c.ConfigEntry(name=name, value=values.get(name, "7")) for name in names)
        replacement = c.ConfigReplacement(
            resource_type=ResourceType.TOPIC, resource_name=topic, configs=configs
        )
        self.machine.run(c.AlterConfigs(resources=(replacement,)))

    def _forget(self, broker: int, topic: str) -> None:
        if self.random.random() < 0.2:
            self.machine.run(c.UnregisterBroker(broker_id=broker))

    def _producer_ids(self, broker: int, topic: str) -> None:
        self.machine.run(c.AllocateProducerIds(broker_id=broker, broker_epoch=self._epoch(broker)))

    def _late_copy(self, broker: int, topic: str) -> None:
        """Of what a broker asked for some time ago. That of an earlier incarnation changes nothing, nor does
        a leader's for an earlier state of its partition."""
        _, _, sent = self.random.choice(self.machine.history)
        command = stamped_command.decode(sent).command
        if not isinstance(command, OF_BROKERS):
            return
        before = self.machine.image
        known = before.brokers.get(command.broker_id)
        if isinstance(command, c.RegisterBroker):
            replaced = known is not None and command.incarnation_id != known.incarnation_id
            is_over = replaced and known.broker_epoch != command.replaces_epoch
        else:
            is_over = known is None or known.broker_epoch != command.broker_epoch
        if isinstance(command, c.AlterPartitions):
            is_over |= all(self._is_over(change) for change in command.changes)
        try:
            self.machine.run(command)
        finally:
            assert self.machine.image is before or not is_over, command

    def _is_over(self, change: c.IsrChange) -> bool:
        topic = self.machine.image.topics_by_id.get(change.topic_id)
        partition = None if topic is None else topic.partitions.get(change.partition)
        return partition is None or partition.partition_epoch != change.partition_epoch

    def check(self, before: MetadataImage, after: MetadataImage) -> None:
        for topic, number, p in after.each_partition():
            name = (topic.name, number, p)
            leads = self.leaders.setdefault((topic.id, number, p.leader_epoch), p.leader)
            assert leads == p.leader, (Invariant.ONE_LEADER_PER_EPOCH, name)
            known = before.topics_by_id.get(topic.id)
            old = None if known is None else known.partitions.get(number)
            if old is not None and old != p:
                assert p.partition_epoch > old.partition_epoch, (Invariant.PARTITION_EPOCH_MONOTONIC, name)
                smaller = not set(old.replicas) <= set(p.replicas)
                moved = p.leader != old.leader or smaller
                assert (p.leader_epoch > old.leader_epoch) == moved, (
                    Invariant.PARTITION_EPOCH_MONOTONIC,
                    name,
                )
                self._check_move(old, p)
            assert p.leader in (NO_LEADER, *p.isr), (Invariant.ISR_WELL_FORMED, name)
            assert len(p.replicas) == len(p.directories), (Invariant.ISR_WELL_FORMED, name)
            assert set(p.adding_replicas) | set(p.removing_replicas) <= set(p.replicas), (
                Invariant.ISR_WELL_FORMED,
                name,
            )
            assert set(p.isr) <= set(p.replicas), (Invariant.ISR_WELL_FORMED, name)
            assert not set(p.isr) & set(p.elr), (Invariant.ISR_WELL_FORMED, name)
            if not self.elr:
                assert p.isr, f"the last member stays {name}"
            if p.leader != NO_LEADER:
                assert after.can_serve(p.leader, p), (Invariant.ISR_ALIVE, name)
            else:
                able = p.replicas if rules_of(after, topic.name).unclean_allowed else (*p.isr, *p.elr)
                assert not any(after.can_serve(b, p) for b in able), f"somebody could lead {name}"
            if self.elr or len(p.isr) > 1:
                assert all(after.can_serve(b, p) for b in p.isr), (Invariant.ISR_ALIVE, name)

    def _check_move(self, old: PartitionRegistration, new: PartitionRegistration) -> None:
        """A replica goes only when all that stay are in sync, or when the move is called off; and of
        those who certainly have everything somebody stays."""
        gone = set(old.replicas) - set(new.replicas)
        if gone:
            called_off = gone == set(old.adding_replicas)
            assert called_off or set(new.isr) == set(new.replicas), f"{old} -> {new}"
            assert not new.reassigning, f"{old} -> {new}"
            clean = new.leader_recovery_state == LeaderRecoveryState.RECOVERED
            trusted = {*old.isr, *old.elr}
            assert not clean or trusted & {*new.isr, *new.elr}, f"{old} -> {new}"


@pytest.mark.row("Q3", "Q4", "Q5", "Q11")
@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=examples(60))
def test_random_commands_keep_the_invariants(seed: int, elr: bool) -> None:
    chaos = Chaos(seed, elr=elr)
    for _ in range(120):
        chaos.step()


@pytest.mark.row("Q3")
@given(st.integers(0, 2**32), st.integers(1, 58))
@settings(max_examples=examples(30))
def test_every_way_to_a_state_is_the_same_state(seed: int, snapshot_at: int) -> None:
    chaos = Chaos(seed, elr=True)
    for _ in range(60):
        chaos.step()
    whole = chaos.machine
    snapshot_at = min(snapshot_at, len(whole.history))

    replayed = MetadataMachine()
    snapshot = b""
    for index, term, command in whole.history:
        replayed.machine.apply(index, term, command)
        if index == snapshot_at:
            snapshot = replayed.machine.snapshot()()
    assert replayed.image == whole.image
    assert replayed.machine.rolling_hash == whole.machine.rolling_hash

    restarted = MetadataMachine(replayed.disk)
    _, term, _ = whole.history[snapshot_at - 1]
    restarted.machine.restore(snapshot, snapshot_at, term)()
    newcomer = MetadataMachine()
    newcomer.machine.restore(snapshot, snapshot_at, term)()
    for index, term, command in whole.history[snapshot_at:]:
        restarted.machine.apply(index, term, command)
        newcomer.machine.apply(index, term, command)
    for other in (restarted, newcomer):
        assert other.image == whole.image
        assert other.machine.rolling_hash == whole.machine.rolling_hash
        assert other.log.end_offset == whole.log.end_offset
    kept = restarted.log.read(0, 1 << 30)  # up to the snapshot, where the log was rolled
    assert kept == whole.log.read(0, len(kept))
    at = newcomer.log.start_offset
    while at < whole.log.end_offset:  # and from there on: the same batches
        made = newcomer.log.read(at, 1 << 30)
        assert made == whole.log.read(at, len(made))
        *_, (_, last) = iter_headers(made)
        at = last.next_offset

    image = whole.image
    assert decode_checkpoint(encode_checkpoint(image), image.offset + 1, image.epoch) == image


@pytest.mark.row("Q3")
@given(st.integers(0, 2**32), st.integers(200, 5000))
@settings(max_examples=examples(20))
def test_whoever_replays_the_fetched_log_gets_the_same_image(seed: int, fetch_bytes: int) -> None:
    chaos = Chaos(seed, elr=True)
    for _ in range(30):
        chaos.step()
    image, end = EMPTY_IMAGE, chaos.machine.log.end_offset
    while image.offset + 1 < end:
        data = chaos.machine.log.read(image.offset + 1, fetch_bytes)
        for pos, header in iter_headers(data):
            assert header.base_offset == image.offset + 1
            assert check_crc(data, pos, header)
            delta = MetadataDelta(image)
            for record in () if header.is_control else decode_batch(data, pos):
                delta.replay(decode(record.value or b""))
            delta.offset, delta.epoch = header.last_offset, header.partition_leader_epoch
            delta.timestamp_ms = header.max_timestamp
            image = delta.apply()
    assert image == chaos.machine.image
