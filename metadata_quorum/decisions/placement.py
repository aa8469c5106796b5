"""Where the replicas of new partitions go.

Round-robin with shifted followers, rack by rack. Brokers are put in a row that alternates racks;
partition p's first replica (the preferred leader) is broker p of the row, counted from a random
start that the proposer stamped. Its followers are the next ones on a walk around the row, which
begins one step further each time the leaders have gone round once, so that a broker's partitions
are not all followed by the same neighbour. A walk passes over racks that are used already while
others are left. Fenced brokers come last: they never lead, and hold replicas only where the others
are too few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import BrokerRegistration


@dataclass(frozen=True, slots=True)
class _Spot:
    broker_id: int
    rack: str | None


def place(
    brokers: Iterable[BrokerRegistration], first: int, count: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """Replicas of the partitions `first` to `first + count - 1`. INVALID_REPLICATION_FACTOR where
    it cannot be done."""
    registered = sorted(brokers, key=lambda b: b.broker_id)
    active = [_Spot(b.broker_id, b.rack) for b in registered if b.active]
    fenced = [_Spot(b.broker_id, b.rack) for b in registered if not b.active]
    _check(len(active), len(registered), replication_factor)
    row = _alternate_racks(active)
    spare = _alternate_racks(fenced)
    ways: dict[tuple[int, int], tuple[int, ...]] = {}
    placed = []
    for partition in range(first, first + count):
        leader = (start + partition) % len(row)
        shift = (start + partition) // len(row)
        turn = shift % max(len(row) - 1, 1)
        replicas = ways.get((leader, turn))
        if replicas is None:
            walk = row[leader + 1 :] + row[:leader]
            walk = walk[turn:] + walk[:turn]
            replicas = ways[leader, turn] = _pick(row[leader], walk, spare, replication_factor)
        placed.append(replicas)
    return placed


def _check(active: int, registered: int, replication_factor: int) -> None:
    problem = ""
    if replication_factor <= 0:
        problem = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
    elif active == 0:
        problem = "All brokers are currently fenced."
    elif replication_factor > registered:
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{registered} broker(s) are registered."
        )
    if problem:
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)


def _alternate_racks(spots: list[_Spot]) -> list[_Spot]:
    """One of each rack in turn, until all are in the row. Brokers without a rack share one."""
    racks: dict[str, list[_Spot]] = {}
    for spot in spots:
        racks.setdefault(spot.rack or "", []).append(spot)
    queues = [racks[name] for name in sorted(racks)]
    longest = max((len(queue) for queue in queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]


def _pick(leader: _Spot, walk: list[_Spot], spare: list[_Spot], replication_factor: int) -> tuple[int, ...]:
    """The leader and its followers: active ones before fenced ones, and the racks that hold least;
    of equals the first on the walk (`min` keeps it)."""
    chosen = [leader]
    held = Counter([leader.rack])
    for candidates in (walk, spare):
        left = list(candidates)
        while left and len(chosen) < replication_factor:
            best = left.pop(min(range(len(left)), key=lambda at: held[left[at].rack]))
            chosen.append(best)
            held[best.rack] += 1
    return tuple(spot.broker_id for spot in chosen)
