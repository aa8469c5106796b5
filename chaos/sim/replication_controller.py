"""The controller of one simulated partition: fencing, elections, ISR changes, reassignment.

It keeps every registration it has committed, with the brokers that were active then; brokers learn of them
late and one by one (replication_broker.py). It checks at every commit that the leader is in the ISR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult
from metadata_quorum.decisions.replicas import completed, reverted, toward
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.foundation.model import NO_LEADER, PartitionRegistration

DIRECTORY: Final = UUID(int=77)


class SimController:
    """See the module."""

    def __init__(self, replicas: Sequence[int], active: Mapping[int, int]) -> None:
        """`active`: unfenced brokers and their epochs. The first replica leads."""
        self.active = dict(active)
        ids = tuple(replicas)
        self.registration = PartitionRegistration(ids, ids, ids[0], 0, 0)
        self.history: list[tuple[PartitionRegistration, dict[int, int]]] = []
        self._commit(self.registration)

    def _commit(self, registration: PartitionRegistration) -> None:
        invariant(
            registration.leader == NO_LEADER or registration.leader in registration.isr,
            Invariant.ISR_WELL_FORMED,
            registration,
        )
        self.registration = registration
        self.history.append((registration, dict(self.active)))

    def fence(self, broker_id: int) -> None:
        """The broker leaves the ISR; where it led, the first ISR member in assignment order takes over."""
        if self.active.pop(broker_id, None) is None:
            return
        before = self.registration
        isr = tuple(b for b in before.isr if b != broker_id) or before.isr  # the last member stays
        self._elect(isr)

    def unfence(self, broker_id: int, broker_epoch: int) -> None:
        self.active[broker_id] = broker_epoch
        self._elect(self.registration.isr)

    def reassign(self, target: Sequence[int]) -> None:
        """Begin to move the partition to these brokers."""
        placed = toward(self.registration, target, lambda broker_id: DIRECTORY)
        self._elect(self.registration.isr, placed)

    def call_off(self) -> None:
        """Back to the replicas of before, if one of them is in sync and alive."""
        placed = reverted(self.registration)
        isr = tuple(b for b in self.registration.isr if b in placed.replicas)
        if any(b in self.active for b in isr):
            self._elect(isr, placed)

    def _elect(self, isr: tuple[int, ...], placed: PartitionRegistration | None = None) -> None:
        before = self.registration
        placed, isr = completed(before if placed is None else placed, isr)
        leader = before.leader
        if leader not in self.active or leader not in isr:
            leader = next((b for b in placed.replicas if b in isr and b in self.active), NO_LEADER)
        new_epoch = leader != before.leader or not set(before.replicas) <= set(placed.replicas)
        changed = replace(placed, isr=isr, leader=leader, leader_epoch=before.leader_epoch + new_epoch)
        if changed != before:  # else only who is active has changed
            changed = replace(changed, partition_epoch=before.partition_epoch + 1)
        self._commit(changed)

    def alter_partition(self, broker_id: int, item: AlterPartitionItem) -> AlterPartitionResult:
        """As the controller decides it (metadata_quorum/decisions/isr.py), for one partition."""
        now = self.registration
        change = item.change
        if change.leader_epoch > now.leader_epoch or change.partition_epoch > now.partition_epoch:
            return AlterPartitionResult(ErrorCode.NOT_CONTROLLER)
        if change.leader_epoch < now.leader_epoch:
            return AlterPartitionResult(ErrorCode.FENCED_LEADER_EPOCH)
        if broker_id != now.leader:
            return AlterPartitionResult(ErrorCode.INVALID_REQUEST)
        if change.partition_epoch < now.partition_epoch:
            return AlterPartitionResult(ErrorCode.INVALID_UPDATE_VERSION)
        if any(self.active.get(member) != epoch for member, epoch in item.isr_with_epochs):
            return AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA)
        self._elect(tuple(b for b in now.replicas if b in change.isr))
        after = self.registration
        if after.leader != broker_id:
            return AlterPartitionResult(ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionResult(
            ErrorCode.NONE, after.leader, after.leader_epoch, after.isr, after.partition_epoch
        )
