"""Where the replicas of a partition are to be, while they are on their way: reassignment (KIP-455).

    replicas   the target, in its order, then those that will leave
    adding     of them, who was not here when the reassignment began
    removing   of them, who leaves when it ends

It ends with the change of the ISR that brings the whole target into it, in the same record. Until then
who leaves serves on, so that no acknowledged record ever lies on fewer replicas than before.
Pure: a partition's registration in, the registration with other replicas out; elections.py makes the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from metadata_quorum.foundation.model import PartitionRegistration


def toward(
    partition: PartitionRegistration, target: Sequence[int], new_directory: Callable[[int], UUID]
) -> PartitionRegistration:
    """On the way to `target`. A second reassignment replaces the first: who had only begun to join leaves
    again, and still counts as added, so that to cancel leads back to where all began."""
    origin = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    leaving = tuple(replica for replica in partition.replicas if replica not in target)
    replicas = (*target, *leaving)  # in the order that they had, for they may come back
    return replace(
        partition,
        replicas=replicas,
        adding_replicas=tuple(sorted(set(replicas).difference(origin))),
        removing_replicas=leaving,
        directories=tuple(
            partition.directory(replica) if replica in partition.replicas else new_directory(replica)
            for replica in replicas
        ),
    )


def reverted(partition: PartitionRegistration) -> PartitionRegistration:
    """Back to the replicas that there were before."""
    return _without(partition, partition.adding_replicas)


def completed(
    partition: PartitionRegistration, isr: tuple[int, ...]
) -> tuple[PartitionRegistration, tuple[int, ...]]:
    """The reassignment over, and the ISR without who leaves, if `isr` holds the whole target; else both as
    they are."""
    target = set(partition.replicas).difference(partition.removing_replicas)
    if not partition.reassigning or not target or not target <= set(isr):
        return partition, isr
    return _without(partition, partition.removing_replicas), tuple(r for r in isr if r in target)


def _without(partition: PartitionRegistration, leaving: tuple[int, ...]) -> PartitionRegistration:
    staying = tuple(replica for replica in partition.replicas if replica not in leaving)
    return replace(
        partition,
        replicas=staying,
        adding_replicas=(),
        removing_replicas=(),
        directories=tuple(partition.directory(replica) for replica in staying),
    )
