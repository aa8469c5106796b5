"""Where the replicas of a partition are to be, while they are on their way: reassignment (KIP-455).

    replicas   the target, in its order, then those that will leave
    adding     of them, those that were not replicas when the reassignment began
    removing   of them, those that leave when it ends

It ends with the change of the ISR that brings the whole target into it, in the same record. Until then
the removed replicas stay, so that no acknowledged record is ever on fewer replicas than before.
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
    """The partition on the way to `target`. A second reassignment replaces the first: a replica that was
    being added leaves again. It still counts as added, so a cancellation leads back to the first replicas.
    """
    origin = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    leaving = tuple(replica for replica in partition.replicas if replica not in target)
    replicas = (*target, *leaving)  # in their old order, for a cancellation
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
    """The partition with the replicas that it had before the reassignment."""
    return _without(partition, partition.adding_replicas)


def completed(
    partition: PartitionRegistration, isr: tuple[int, ...]
) -> tuple[PartitionRegistration, tuple[int, ...]]:
    """The partition after its reassignment, and the ISR without the removed replicas, if `isr` contains the
    whole target; otherwise both unchanged."""
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
