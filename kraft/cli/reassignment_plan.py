"""Where the replicas of topics could lie: a balanced proposal, and the file that it is written in.

The file is the one of kafka-reassign-partitions:

    {"version": 1, "partitions": [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/disks/a"]}]}

A proposal gives every broker as many replicas as any other, and as many first ones (the preferred leaders);
no rack has two replicas of a partition while another has none; and what may stay where it is stays. Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

ANY_DIR: Final = "any"
VERSION: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class PlacedPartition:
    """A partition and its replicas, the preferred leader first."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()
    """Per replica a path, or "any"; empty means "any" for all."""


def encode(plan: Iterable[PlacedPartition]) -> str:
    """One line, as the tool prints it."""
    partitions = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": list(each.replicas),
            "log_dirs": list(each.log_dirs or (ANY_DIR,) * len(each.replicas)),
        }
        for each in plan
    ]
    return json.dumps({"version": VERSION, "partitions": partitions})


def decode(text: str) -> list[PlacedPartition]:
    """Raises ValueError with a sentence."""
    try:
        data = json.loads(text)
        plan = [_placed(each) for each in data["partitions"]]
    except (json.JSONDecodeError, RecursionError) as e:
        raise ValueError(f"not JSON: {e}") from None
    except (KeyError, TypeError):
        raise ValueError('each entry of "partitions" needs topic, partition and replicas') from None
    if data.get("version", VERSION) != VERSION:
        raise ValueError(f"version {data['version']} is not known, only {VERSION}")
    twice = [name for name, count in Counter((p.topic, p.partition) for p in plan).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0][0]}-{twice[0][1]} is named more than once")
    if not plan:
        raise ValueError("no partition is named")
    return plan


def _placed(entry: Mapping[str, Any]) -> PlacedPartition:
    topic, partition, replicas = entry["topic"], entry["partition"], tuple(entry["replicas"])
    log_dirs = tuple(entry.get("log_dirs", ()))
    if {type(number) for number in (partition, *replicas)} != {int}:
        raise TypeError
    if {type(text) for text in (topic, *log_dirs)} != {str}:
        raise TypeError
    name = f"{topic}-{partition}"
    if len(set(replicas)) != len(replicas) or not replicas:
        raise ValueError(f"{name}: replicas are some brokers, each named once")
    if log_dirs and len(log_dirs) != len(replicas):
        raise ValueError(f"{name}: {len(log_dirs)} log_dirs for {len(replicas)} replicas")
    return PlacedPartition(topic, partition, replicas, log_dirs)


def propose(
    current: Sequence[PlacedPartition], racks: Mapping[int, str | None], replication_factor: int | None = None
) -> list[PlacedPartition]:
    """The same partitions on the brokers of `racks`, with as many replicas as they have, or as requested.
    Raises ValueError where there are too few brokers."""
    replica_count = max((replication_factor or len(each.replicas) for each in current), default=0)
    if not 0 < replica_count <= len(racks):
        raise ValueError(f"{replica_count} replicas cannot be placed on {len(racks)} brokers")
    proposal = _Proposal(current, racks, replication_factor)
    proposal.keep()
    proposal.fill()
    proposal.balance()
    return proposal.ordered()


class _Proposal:
    """A plan in the making: the replicas and leaders of each broker."""

    def __init__(
        self,
        current: Sequence[PlacedPartition],
        racks: Mapping[int, str | None],
        replication_factor: int | None,
    ) -> None:
        self._current = current
        self._racks = racks
        self._sizes = [replication_factor or len(each.replicas) for each in current]
        self._held: list[list[int]] = [[] for _ in current]
        self._load = dict.fromkeys(sorted(racks), 0)
        # No partition needs more replicas in a rack than this.
        self._per_rack = -(-max(self._sizes) // len(set(racks.values())))

    def _fellows(self, place: int, broker: int, leaving: int | None = None) -> int:
        """Other replicas of the partition in the broker's rack."""
        rack = self._racks[broker]
        return sum(
            self._racks[other] == rack for other in self._held[place] if other not in (broker, leaving)
        )

    def _put(self, place: int, broker: int) -> None:
        self._held[place].append(broker)
        self._load[broker] += 1

    def keep(self) -> None:
        """What lies on one of the brokers stays there, up to an even share."""
        share = -(-sum(self._sizes) // len(self._racks))
        for place, partition in enumerate(self._current):
            for broker in partition.replicas:
                fits = broker in self._racks and self._load[broker] < share
                room = len(self._held[place]) < self._sizes[place]
                if fits and room and self._fellows(place, broker) < self._per_rack:
                    self._put(place, broker)

    def fill(self) -> None:
        """The others go to racks without a replica first, and where there is least."""
        for place, size in enumerate(self._sizes):
            while len(self._held[place]) < size:
                free = [broker for broker in self._load if broker not in self._held[place]]
                self._put(place, min(free, key=lambda b: (self._fellows(place, b), self._load[b], b)))

    def balance(self) -> None:
        """Move replicas from the broker with most to the one with least, while that balances them and no
        partition loses a rack."""
        while (swap := self._swap()) is not None:
            place, giver, taker = swap
            self._held[place][self._held[place].index(giver)] = taker
            self._load[giver] -= 1
            self._load[taker] += 1

    def _swap(self) -> tuple[int, int, int] | None:
        by_load = sorted(self._load, key=lambda b: (self._load[b], b))
        for taker in by_load:
            for giver in reversed(by_load):
                if self._load[giver] - self._load[taker] < 2:
                    break
                for place, held in enumerate(self._held):
                    if giver in held and taker not in held:
                        before, after = self._fellows(place, giver), self._fellows(place, taker, giver)
                        if after <= before:
                            return place, giver, taker
        return None

    def ordered(self) -> list[PlacedPartition]:
        """The preferred leader of each: the current one, up to an even share, else the one that leads
        least."""
        share = -(-len(self._current) // len(self._racks))
        leads = Counter[int]()
        plan = []
        for partition, held in zip(self._current, self._held, strict=True):
            first = partition.replicas[0] if partition.replicas else -1
            if first not in held or leads[first] >= share:
                first = min(held, key=lambda b: (leads[b], held.index(b)))
            leads[first] += 1
            plan.append([first, *(broker for broker in held if broker != first)])
        _spread_leaders(plan, leads)
        return [
            PlacedPartition(each.topic, each.partition, tuple(replicas))
            for each, replicas in zip(self._current, plan, strict=True)
        ]


def _spread_leaders(plan: list[list[int]], leads: Counter[int]) -> None:
    """Change the order where a replica of the partition leads fewer than the first."""
    changed = True
    while changed:
        changed = False
        for replicas in plan:
            least = min(replicas, key=lambda broker: leads[broker])
            if leads[replicas[0]] - leads[least] > 1:
                leads[replicas[0]] -= 1
                leads[least] += 1
                replicas.remove(least)
                replicas.insert(0, least)
                changed = True
