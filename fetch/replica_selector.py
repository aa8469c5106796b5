"""From which replica a consumer should read (KIP-392): Kafka's RackAwareReplicaSelector.

    api/fetch (rack id of the consumer) -> reader, on the leader -> here -> preferred_read_replica

Only replicas in sync are named, and only where they hold the offset that is asked for: a consumer that comes
too early would be sent back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from data_plane.replication.partition import Partition

STAY: Final = -1
"""Read from the leader, which was asked."""

RackOf = Callable[[int], str | None]
"""The rack of a broker that the consumer can reach; None where it has none, or cannot be reached."""


def nearest_replica(replica: Partition, offset: int, rack: str, rack_of: RackOf) -> int:
    """The broker to read `offset` from, of those in `rack` the one that is furthest; or STAY."""
    leader = replica.leader
    if leader is None or rack_of(replica.leader_id) == rack:
        return STAY
    near = [
        (follower.log_end_offset, follower.last_caught_up, follower.broker_id)
        for follower in leader.followers.values()
        if follower.broker_id in leader.isr
        and follower.log_start_offset <= offset <= follower.log_end_offset
        and rack_of(follower.broker_id) == rack
    ]
    return max(near)[-1] if near else STAY
