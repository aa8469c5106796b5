"""Replicas, as they are in every broker's memory: looked at after every event in which they can change,
compared with one another and with what any leader has ever shown.

    replica_watch.py -> offsets in order, epochs rising -> high watermarks never back, and on all of the ISR
                     -> leaders have all that was shown; members of the ISR keep it -> batches.py
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

from chaos.simulator.cluster import Cluster
from chaos.simulator.oracles.batches import BatchOracle
from chaos.simulator.oracles.committed_metadata import MetadataOracle
from chaos.simulator.oracles.quorum import Report
from chaos.simulator.oracles.replica_watch import ReplicaWatch
from chaos.simulator.process_loop import ProcessLoop
from data_plane.log.aborted import AbortedTransaction
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.batch import decode_batch, iter_headers
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.invariants import Invariant
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition

PIECE_BYTES: Final = 1 << 20
SIMULATED: Final = MayBlock("a simulated disk waits for nothing when an oracle reads")


class ReplicaOracle:
    """See the module."""

    def __init__(self, cluster: Cluster, report: Report, metadata: MetadataOracle) -> None:
        self._cluster = cluster
        self._report = report
        self._metadata = metadata
        self._shown: dict[tuple[int, int], int] = {}
        """The highest high watermark of any leader, by topic id and partition."""
        self._of_epoch: dict[tuple[int, int, int], int] = {}
        """The same within a leader epoch."""
        self._leads: dict[tuple[int, int, int], int] = {}
        self._states: dict[tuple[int, TopicPartition], tuple[int, int, int, int, int]] = {}
        """By process: the offsets in their order, and the latest epoch. What is as it was is not judged
        again."""
        self._batches = BatchOracle(cluster, report)
        self._watch = ReplicaWatch(cluster, self._look_at)

    def _look_at(self, node_id: int, loop: ProcessLoop, partition: Partition) -> None:
        log, here = partition.log, (loop.number, partition.tp)
        start, end, latest_epoch = log.log_start_offset, log.log_end_offset, log.epochs.latest
        state = (start, partition.last_stable_offset, partition.high_watermark, end, latest_epoch)
        before = self._states.get(here)
        if state != before:
            self._states[here] = state
            self._changed(f"{partition.tp} on {node_id}", partition, state[:4])
            self._batches.look_at(node_id, partition)
            if before is not None and end < before[3]:
                self._truncated(node_id, partition, before[3], end)
            if before is not None and start > before[0]:
                restarts = start > before[3]
                self._cluster.story.visit("log begins anew" if restarts else "log start moves")
        if partition.leader is not None:
            self._look_at_leader(node_id, partition, state[2], end)

    def _truncated(self, node_id: int, partition: Partition, before: int, end: int) -> None:
        """A follower has no other reason to (fetch/follower.py)."""
        story = self._cluster.story
        story.visit("truncation")
        what = (
            f"{partition.tp} truncated from {before} to {end}: there its epochs part from those of leader "
            f"{partition.leader_id} in epoch {partition.leader_epoch}"
        )
        story.tell(self._cluster.scheduler.now, f"n{node_id}", what)
        state = self._metadata.newest(partition.topic_id, partition.tp.partition)
        shown = self._shown.get((partition.topic_id.int, partition.tp.partition), 0)
        if end < shown and state is not None and node_id in state.isr and self._keeps(node_id):
            what = f"{partition.tp} on {node_id}, of the ISR, is truncated to {end}, {shown} was shown"
            self._report(Invariant.ACKED_IN_LOG.name, what)

    def _keeps(self, node_id: int) -> bool:
        """Whether nothing has taken from it what it had."""
        machine = self._cluster.machines[node_id]
        return machine.boots == 1 and not machine.disk.struck

    def _changed(self, name: str, partition: Partition, order: tuple[int, int, int, int]) -> None:
        if list(order) != sorted(order):
            self._report(Invariant.OFFSETS_IN_ORDER.name, f"{name}: {order}")
        entries = partition.log.epochs.entries
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
            self._report(Invariant.BATCH_EPOCHS_MONOTONIC.name, f"{name}: {entries}")

    def _look_at_leader(self, node_id: int, partition: Partition, high_watermark: int, end: int) -> None:
        partition_id = (partition.topic_id.int, partition.tp.partition)
        epoch = (*partition_id, partition.leader_epoch)
        if self._leads.setdefault(epoch, node_id) != node_id:
            what = f"{self._leads[epoch]} and {node_id} lead {partition.tp} in epoch {partition.leader_epoch}"
            self._report(Invariant.ONE_LEADER_PER_EPOCH.name, what)
        before = self._of_epoch.get(epoch, 0)
        if high_watermark < before:
            what = (
                f"{partition.tp} on {node_id}: {before} -> {high_watermark} in epoch {partition.leader_epoch}"
            )
            self._report(Invariant.HIGH_WATERMARK_MONOTONIC.name, what)
        self._of_epoch[epoch] = high_watermark
        if high_watermark > before:
            self._look_at_isr(node_id, partition, high_watermark)
        shown = self._shown.get(partition_id, 0)
        if end < shown and self._is_latest(partition):
            what = f"{partition.tp} on {node_id} ends at {end}, {shown} was shown"
            self._report(Invariant.ACKED_IN_LOG.name, what)
        self._shown[partition_id] = max(shown, high_watermark)

    def _look_at_isr(self, node_id: int, partition: Partition, high_watermark: int) -> None:
        """The high watermark has risen: all who count have that much. Nothing is known of who is down. Who
        follows a later leader may have been taken away meanwhile, and have come back with nothing."""
        assert partition.leader is not None
        for member in partition.leader.maximal_isr:
            if member == node_id or not self._keeps(member):
                continue
            replica = self._watch.find(member, str(partition.tp))
            if replica is None or replica.topic_id != partition.topic_id:
                continue
            if replica.leader_epoch > partition.leader_epoch:
                continue
            end = replica.log.log_end_offset
            if end < high_watermark:
                what = (
                    f"{partition.tp} on {node_id} shows {high_watermark}, {member} of the ISR ends at {end}"
                )
                self._report(Invariant.ACKED_IN_LOG.name, what)

    def _is_latest(self, partition: Partition) -> bool:
        """Whether nobody was elected since. Not what an active controller has: one that was stopped while
        the others elected another believes that it is active."""
        state = self._metadata.newest(partition.topic_id, partition.tp.partition)
        return state is not None and state.leader_epoch == partition.leader_epoch

    def unsettled(self) -> str:
        """When nothing is written: which replica of the metadata is not there, has another role or epoch, or
        is not at the end that all have; or is there, and not in the metadata. Empty where there is none."""
        if self._cluster.leader is None:  # it was cut off until the heal, and has resigned since
            return "no controller is active"
        for name, state, found in self._by_partition():
            if state is None:
                return f"{name} is on {sorted(found)}, and deleted"
            if set(state.replicas) != found.keys():
                return f"{name} is on {sorted(found)} in place of {state.replicas}"
            ends = {end for each in found.values() for end in (each.log.log_end_offset, each.high_watermark)}
            if len(ends) > 1:
                return f"{name} ends at {sorted(ends)}"
            for node_id, partition in found.items():
                if partition.leader_epoch != state.leader_epoch or partition.leader_id != state.leader:
                    return f"{partition} on {node_id} is not as {state} says"
        return ""

    def _by_partition(self) -> Iterator[tuple[str, PartitionRegistration | None, dict[int, Partition]]]:
        """With the replicas that brokers serve, by broker; also of what the metadata does not have."""
        replicas: dict[tuple[UUID, int], dict[int, Partition]] = defaultdict(dict)
        for node_id, running in self._cluster.running.items():
            if running.node.broker_role is not None:
                for partition in running.node.broker_role.replica_manager:
                    if not partition.offline and not partition.removed:
                        replicas[partition.topic_id, partition.tp.partition][node_id] = partition
        leader = self._cluster.leader
        assert leader is not None
        assert leader.node.controller_role is not None
        for name, topic in leader.node.controller_role.state_machine.image.topics_by_name.items():
            for number, state in topic.partitions.items():
                yield f"{name}-{number}", state, replicas.pop((topic.id, number), {})
        for left in replicas.values():
            yield str(next(iter(left.values())).tp), None, left

    def compare(self) -> None:
        """All replicas are the same, when nothing is written: byte for byte, or, where each compacts by
        itself, in the last record of each key."""
        for name, _, found in self._by_partition():
            if not found:
                continue  # was reported as missing
            start = max(each.log.log_start_offset for each in found.values())
            end = min(each.high_watermark for each in found.values())
            contents = {node_id: contents_of(each, start, end) for node_id, each in found.items()}
            if next(iter(found.values())).log.config.compact:
                lasts = [
                    last_records(contents[node_id], each.log.aborted.entries)
                    for node_id, each in found.items()
                ]
                if any(records_in(each) < end - start for each in contents.values()):
                    self._cluster.story.visit("compaction")
                is_same = all(each == lasts[0] for each in lasts)
            else:
                is_same = len(set(contents.values())) == 1
            if not is_same:
                sizes = {node_id: len(each) for node_id, each in contents.items()}
                what = f"{name} from {start} to {end}: {sizes} bytes"
                self._report(Invariant.REPLICAS_AGREE.name, what)
            self._compare_producers(name, found, start)
            configs = {node_id: each.log.config for node_id, each in found.items()}
            if any(each != next(iter(configs.values())) for each in configs.values()):
                self._report("configuration", f"{name} has another one on some brokers: {configs}")

    def _compare_producers(self, name: str, found: Mapping[int, Partition], start: int) -> None:
        """They follow from the batches alone, live or read again: the next leader must know a repeated batch,
        and which transactions are open or aborted. Where each compacts by itself, batches are gone; and what
        was deleted before a follower came to it, it never knew."""
        if next(iter(found.values())).log.config.compact:
            return
        known = {node_id: producers_of(each, start) for node_id, each in found.items()}
        if any(each != next(iter(known.values())) for each in known.values()):
            self._report(Invariant.REPLICAS_AGREE.name, f"{name} has other producers: {known}")


def producers_of(
    partition: Partition, start: int
) -> tuple[dict[int, tuple[int | None, ...]], list[tuple[int, ...]]]:
    """Each producer's epoch, last sequence number and its offset, coordinator's epoch and where its
    transaction begins, of those that have written from `start` on, or before nothing was deleted; and the
    aborted transactions that begin there. A snapshot keeps of batches only the last one."""
    log = partition.log
    states: dict[int, tuple[int | None, ...]] = {
        producer_id: (
            state.epoch,
            state.last_sequence,
            state.batches[-1].last_offset if state.batches else None,
            state.coordinator_epoch,
            state.current_txn_first_offset,
        )
        for producer_id, state in log.producers.states.items()
        if not start or (state.batches and state.batches[-1].last_offset >= start)
    }
    return states, [each[:3] for each in log.aborted.entries if each.first_offset >= start]


def records_in(batches: bytes) -> int:
    """How many are left."""
    return sum(header.record_count for _, header in iter_headers(batches))


def last_records(
    batches: bytes, aborted: Sequence[AbortedTransaction]
) -> dict[bytes | None, tuple[int, bytes | None]]:
    """The last offset and value of each key. Left out are markers, which have keys of their own, and what was
    aborted: one replica's cleaner has removed it, and another's not yet."""
    found: dict[bytes | None, tuple[int, bytes | None]] = {}
    for position, header in iter_headers(batches):
        is_aborted = header.is_transactional and any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
        for record in () if header.is_control or is_aborted else decode_batch(batches, position):
            found[record.key] = (record.offset, record.value)
    return found


def contents_of(partition: Partition, start: int, end: int) -> bytes:
    """The batches of these offsets."""
    pieces: list[bytes] = []
    while start < end:
        found = partition.log.read(start, PIECE_BYTES, upper_offset=end, at_least_one_batch=True)
        piece = found.read(SIMULATED)
        batches = list(iter_headers(piece))
        if not batches:
            break
        position, last = batches[-1]
        pieces.append(bytes(piece[: position + last.size]))
        start = last.next_offset
    return b"".join(pieces)
