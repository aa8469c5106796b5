"""What must hold for a simulated partition after every step: the invariants of logs, and no lost record.

`Invariant.ISR_WELL_FORMED` is checked where the controller commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from chaos.sim.replication_broker import SIMULATED, SimBroker
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.batch import decode_batch, iter_headers
from metadata_quorum.foundation.invariants import Invariant, invariant


def values_of(partition: Partition) -> dict[int, bytes]:
    """The values a replica holds, by offset."""
    values: dict[int, bytes] = {}
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, at_least_one_batch=True).read(SIMULATED)
        for position, _ in iter_headers(data):
            for record in decode_batch(data, position):
                values[record.offset] = record.value or b""
                offset = record.offset + 1
    return values


def check_offsets(partition: Partition) -> None:
    """Log start, last stable offset, high watermark and log end of one replica are in order."""
    log = partition.log
    order = (log.log_start_offset, partition.last_stable_offset, partition.high_watermark, log.log_end_offset)
    invariant(list(order) == sorted(order), Invariant.OFFSETS_IN_ORDER, (partition.tp, order))


class ReplicationChecks:
    """Remembers what was exposed to consumers, and compares every replica with it."""

    def __init__(self) -> None:
        self.committed: list[bytes] = []  # values below any high watermark ever exposed, by offset
        self._high_watermarks: dict[int, int] = {}  # by leader epoch

    def check(self, brokers: Mapping[int, SimBroker], latest_leader_epoch: int) -> None:
        """Every replica whose process is alive; to be called after every step. Raises InvariantViolation."""
        alive = [b.partition for b in brokers.values() if b.partition is not None]
        for partition in alive:
            check_offsets(partition)
            self._check_epochs(partition)
            if partition.leader is not None:
                self._check_leader(partition, brokers, latest_leader_epoch)
        self._check_identical(alive)

    def _check_leader(
        self, leader: Partition, brokers: Mapping[int, SimBroker], latest_leader_epoch: int
    ) -> None:
        state = leader.leader
        assert state is not None
        hw = leader.high_watermark
        for member in state.maximal_isr:
            replica = brokers[member].partition
            # A replica is taken away in a later epoch, which this leader does not know yet.
            if replica is not None and brokers[member].wiped_in <= state.leader_epoch:
                invariant(replica.log.log_end_offset >= hw, Invariant.OFFSETS_IN_ORDER, (member, replica, hw))
        # The high watermark is what consumers may have seen from this epoch on.
        if hw >= state.epoch_start_offset:
            before = self._high_watermarks.get(state.leader_epoch, 0)
            invariant(hw >= before, Invariant.HIGH_WATERMARK_MONOTONIC, (leader, before))
            self._high_watermarks[state.leader_epoch] = hw
        held = values_of(leader)
        for offset in range(leader.log.log_start_offset, min(hw, len(self.committed))):
            invariant(held.get(offset) == self.committed[offset], Invariant.ACKED_IN_LOG, (leader, offset))
        for offset in range(len(self.committed), hw):
            self.committed.append(held[offset])
        if state.leader_epoch == latest_leader_epoch:
            invariant(
                leader.log.log_end_offset >= len(self.committed),
                Invariant.HIGH_WATERMARK_MONOTONIC,
                (leader, len(self.committed)),
            )

    @staticmethod
    def _check_epochs(partition: Partition) -> None:
        entries = partition.log.epochs.entries
        pairs = list(pairwise(entries))
        invariant(
            all(a[0] < b[0] and a[1] < b[1] for a, b in pairs),
            Invariant.BATCH_EPOCHS_MONOTONIC,
            (partition, entries),
        )

    def _check_identical(self, alive: list[Partition]) -> None:
        replicas = sorted(alive, key=lambda p: -p.high_watermark)
        held = values_of(replicas[0]) if replicas else {}
        for other in replicas[1:]:
            low = max(replicas[0].log.log_start_offset, other.log.log_start_offset)
            here = values_of(other)
            same = all(held.get(o) == here.get(o) for o in range(low, other.high_watermark))
            invariant(same, Invariant.REPLICAS_AGREE, (low, replicas[0], other))
