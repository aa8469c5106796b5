"""Which cluster a simulation runs, what its clients do, and what is done to it.

profile_of(seed) -> Profile: the seeds take turns; a profile is the same for all of its seeds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from chaos.history import ACKS_ALL, TopicMode
from chaos.simulator.cluster import ClusterShape
from chaos.simulator.faults import (
    BLACKOUTS,
    DISKS,
    GENTLE,
    HARSH,
    PARTIAL,
    RARE,
    STRANDING,
    Severity,
    Tolerance,
)
from chaos.simulator.sightings import OF_DIRECTORIES, OF_TRANSACTIONS, SIGHTINGS

INPUT: Final = "input"
"""What transactional producers copy."""
SMALL: Final = {
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.log.segment.bytes": "8388608",
    "log.roll.ms": "3000",
    "log.cleaner.backoff.ms": "1000",
    "replica.lag.time.max.ms": "5000",
}
"""So that snapshots, rolls, cleanings and replicas that fall behind are seen within seconds."""
SHORT: Final = {
    **SMALL,
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
}
"""So that faults outlast them: elections of the living, followers that lag."""
SESSIONS: Final = {
    "group.consumer.min.session.timeout.ms": "8000",
    "group.consumer.session.timeout.ms": "8000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
"""Of the consumer protocol: short, and longer than a client waits for an answer."""
FLUSHED: Final = {"log.flush.interval.messages": "1"}
"""An acknowledgement means that it is on a device."""


GROUPS: Final = {"classic": True, "consumer": False}
"""By name, and whether the group is of the classic protocol."""
PACES: Final = (1, 2, 5)
"""Some bugs want haste, others time between two operations, and slow clients cost less."""


@dataclass(frozen=True, slots=True)
class Profile:
    """See the module."""

    name: str
    shape: ClusterShape
    topics: Mapping[str, TopicMode]
    """What is written, and how."""
    severity: Severity = GENTLE
    pause_s: float = 0.1
    """Between two operations of a client, at most."""
    paces: tuple[int, ...] = PACES
    """By how much clients of a seed are slower."""
    producers: int = 1
    """For each topic."""
    readers: int = 1
    """For all topics."""
    session_readers: int = 0
    """For all topics, as newer clients fetch; each in a rack of its own."""
    members: int = 0
    """Of a classic group and of a consumer group each, which read everything."""
    static_members: int = 0
    """So many of each group's have names of their own (KIP-345)."""
    upgrade: bool = False
    """An operator restarts node after node, then raises the levels of the features."""
    second_transactors: bool = False
    """Every other client that writes in transactions is of transaction.version 2."""
    resends: bool = False
    """Producers without idempotence send again what was not acknowledged, too: no write fails."""
    admins: int = 0
    """They move partitions, and make and delete topics."""
    fleeting: Mapping[str, TopicMode] = field(default_factory=dict)
    """What is written, too, and deleted within seconds: no history is judged by it, but its replicas are."""
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """Every partition."""
        return [f"{topic}-{i}" for topic, mode in self.topics.items() for i in range(mode.partitions)]

    @property
    def exposed(self) -> list[str]:
        """Clients whose links faults may strike, by name: all."""
        counts = {
            "reader": self.readers, "session": self.session_readers, "admin": self.admins,
            **dict.fromkeys(GROUPS, self.members),
        }  # fmt: skip
        for topic, mode in self.topics.items():
            counts[topic] = self.topics[INPUT].partitions if mode.transactional else self.producers
        return [f"{name}{number}" for name, count in counts.items() for number in range(count)]

    @property
    def tolerance(self) -> Tolerance:
        """What acks=all acknowledges is on min.insync.replicas brokers, one of which must not lose it. Nobody
        can where all is flushed that is acknowledged, nor a controller, whose voter syncs what it says."""
        shape = self.shape
        is_flushed = FLUSHED.items() <= shape.settings.items()
        synced = [each for each in shape.nodes if is_flushed or each not in shape.brokers]
        return Tolerance(shape.min_isr - 1, tuple(synced))

    @property
    def states(self) -> dict[str, float]:
        """For which faults may wait, and how likely each is, against the others."""
        states = dict.fromkeys(SIGHTINGS, 1.0)
        written = (*self.topics.values(), *self.fleeting.values())
        writes_in_transactions = any(mode.transactional for mode in written)
        has_directories = self.shape.log_dirs > 1
        return states | {
            OF_TRANSACTIONS: 4.0 if writes_in_transactions else 0.0,
            OF_DIRECTORIES: 4.0 if has_directories else 0.0,
        }

    @property
    def writers(self) -> list[tuple[str, int]]:
        """Topic and number of each client that writes: the topics take turns, as in the lab."""
        return [
            (topic, number)
            for number in range(self.producers)
            for topic, mode in self.topics.items()
            if not (mode.transactional and number)
        ] + [(topic, 0) for topic in self.fleeting]


PLAIN: Final = {
    "all": TopicMode(2, ACKS_ALL),
    "idempotent": TopicMode(1, ACKS_ALL, idempotent=True),
    "one": TopicMode(1, 1),
}
MIXED: Final = {
    "all": TopicMode(2, ACKS_ALL),
    "none": TopicMode(1, 0),
    "compacted": TopicMode(1, ACKS_ALL, idempotent=True, compacted=True),
}
COMPACTED: Final = {
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05", "segment.ms": "1000"}
}
FLEETING: Final = {
    "fleeting": TopicMode(2, ACKS_ALL, idempotent=True),
    "gone": TopicMode(1, 1),
    "passing": TopicMode(1, ACKS_ALL, idempotent=True, transactional=True),
}
BRIEF: Final = {
    name: {"retention.ms": "2000", "segment.ms": "500", "file.delete.delay.ms": "1000"} for name in FLEETING
}
"""A follower that lags for a few seconds finds that its leader's log begins later."""
DURABLE: Final = {"all": TopicMode(2, ACKS_ALL), "idempotent": TopicMode(1, ACKS_ALL, idempotent=True)}
COPIED: Final = {
    INPUT: TopicMode(2, ACKS_ALL, idempotent=True),
    "copied": TopicMode(2, ACKS_ALL, idempotent=True, transactional=True),
}
WIDE: Final = {"all": TopicMode(6, ACKS_ALL)}

COMBINED: Final = Profile("combined", ClusterShape((1, 2, 3), (1, 2, 3), SMALL), PLAIN)
PROFILES: Final[Mapping[str, Profile]] = {
    each.name: each
    for each in (
        COMBINED,
        Profile("separate", ClusterShape((1, 2, 3), (4, 5, 6), SMALL), PLAIN),
        replace(COMBINED, name="combined-harsh", severity=HARSH),
        Profile("separate-harsh", ClusterShape((1, 2, 3), (4, 5, 6), SMALL), PLAIN, HARSH),
        Profile("one-controller", ClusterShape((1,), (2, 3, 4), SMALL), PLAIN, HARSH),
        Profile("five", ClusterShape((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), SMALL, 5), PLAIN, HARSH),
        Profile("quiet", ClusterShape((1, 2, 3), (4, 5, 6)), PLAIN, HARSH, pause_s=3.0),
        Profile("transactions", ClusterShape((1, 2, 3), (1, 2, 3), SMALL), COPIED, pause_s=0.5),
        Profile("transactions-harsh", ClusterShape((1, 2, 3), (4, 5, 6), SMALL), COPIED, HARSH, 0.5),
        Profile(
            "groups",
            ClusterShape((1, 2, 3), (1, 2, 3), {**SMALL, **SESSIONS}),
            DURABLE,
            pause_s=0.3,
            members=3,
        ),
        Profile(
            "groups-harsh",
            ClusterShape((1, 2, 3), (4, 5, 6), {**SMALL, **SESSIONS}),
            DURABLE,
            HARSH,
            pause_s=0.3,
            members=3,
        ),
        Profile(
            "changing",
            ClusterShape((1, 2, 3), (4, 5, 6, 7), SMALL),
            MIXED,
            HARSH,
            admins=1,
            topic_configs=COMPACTED,
        ),
        Profile("blackout", ClusterShape((1, 2, 3), (1, 2, 3), {**SMALL, **FLUSHED}), DURABLE, BLACKOUTS),
        Profile("partial", ClusterShape((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), SHORT), PLAIN, PARTIAL),
        Profile("stranded", ClusterShape((1,), (2, 3, 4), SHORT), PLAIN, STRANDING),
        Profile(
            "transactions-v2",
            ClusterShape((1, 2, 3), (4, 5, 6), SMALL),
            {**COPIED, INPUT: TopicMode(3, ACKS_ALL, idempotent=True)},
            HARSH,
            0.5,
            second_transactors=True,
        ),
        Profile(
            "groups-static",
            ClusterShape((1, 2, 3), (4, 5, 6), {**SMALL, **SESSIONS}),
            DURABLE,
            HARSH,
            pause_s=0.3,
            members=3,
            static_members=2,
        ),
        Profile(
            "nearby",
            ClusterShape((1, 2, 3), (4, 5, 6), SMALL, racks=3),
            {**COPIED, "one": TopicMode(1, 1)},
            HARSH,
            0.5,
            session_readers=2,
        ),
        Profile(
            "retention",
            ClusterShape((1, 2, 3), (4, 5, 6), {**SMALL, "log.retention.check.interval.ms": "500"}),
            {INPUT: TopicMode(1, ACKS_ALL, idempotent=True), **DURABLE},
            HARSH,
            fleeting=FLEETING,
            topic_configs=BRIEF,
        ),
        Profile("upgrade", ClusterShape((1, 2, 3), (4, 5, 6), SMALL), COPIED, RARE, 0.5, upgrade=True),
        Profile(
            "disks",
            ClusterShape((1, 2, 3), (1, 2, 3, 4), {**SMALL, **SESSIONS}, log_dirs=3),
            DURABLE,
            DISKS,
            members=2,
            admins=1,
        ),
        Profile("fifty", ClusterShape((1, 2, 3), tuple(range(4, 51)), SMALL), WIDE, HARSH, pause_s=1.0),
    )
}


def profile_of(seed: int) -> Profile:
    """The seeds take turns."""
    profiles = list(PROFILES.values())
    return profiles[seed % len(profiles)]
