"""acks=all: answering a produce when every in-sync replica has it.

The records are already in the leader's log; the produce waits for each partition's high watermark to reach
the offset after its last record. It fails early if that cannot happen any more: leadership lost, ISR below
min.insync.replicas, disk failed. All of this may have happened before the wait begins, because a request with
very many partitions is appended in several turns of the loop. After the request's timeout the remaining
partitions are answered with REQUEST_TIMED_OUT; their records stay, and may still be replicated.

Path of the data: api/produce -> partition.append_as_leader -> here -> (follower fetches raise the high
watermark) -> reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from data_plane.purgatory.purgatory import DelayedOperation
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.errors import ErrorCode

Appended = tuple[Partition, int, int]
"""A partition, the offset after the last record, and the leader epoch in which it was appended."""


def await_replication(
    appended: Sequence[Appended],
    *,
    timer: WheelTimer,
    timeout: float,
    on_done: Callable[[list[ErrorCode]], None],
) -> None:
    """Call `on_done` with an outcome per partition, in the same order; at once if there is nothing to wait
    for."""
    wait = DelayedOperation(on_done)
    for partition, needed_offset, leader_epoch in appended:
        outcome = _outcome(partition, needed_offset, leader_epoch)
        if outcome is None:
            wait.add(partition.high_watermark_purgatory, needed_offset)
        else:
            wait.settle(outcome)
    wait.start(timer, timeout)


def _outcome(partition: Partition, needed_offset: int, leader_epoch: int) -> ErrorCode | None:
    """The outcome, if it is known already; None: wait. (A loss of leadership ends only waits that have
    begun.)"""
    leader = partition.leader
    if leader is None or leader.leader_epoch != leader_epoch:  # it may have been truncated in between
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if partition.high_watermark >= needed_offset:
        too_few = len(leader.maximal_isr) < leader.min_isr
    elif leader.under_min_isr:
        too_few = True
    else:
        return None
    return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if too_few else ErrorCode.NONE


def add_deletion(wait: DelayedOperation, partition: Partition, offset: int) -> None:
    """The same for the next partition of a DeleteRecords: wait until every live replica's log begins at the
    offset or later. Only the leader knows that, so this is for the turn in which it has deleted: from then on
    a loss of leadership ends the wait."""
    if partition.low_watermark() >= offset:
        wait.settle(ErrorCode.NONE)
    else:
        wait.add(partition.low_watermark_purgatory, offset)
