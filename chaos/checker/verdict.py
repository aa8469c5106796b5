"""The result of the checker: anomalies with their evidence, how many of each, and whether all of them are
tolerated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple, Self

from chaos.checker.anomalies import (
    BACKDATED_SEND,
    GROUP_SKIP,
    INCONSISTENT_OFFSETS,
    INT_NONMONOTONIC_POLL,
    INT_POLL_SKIP,
    KINDS,
    LOST_COMMIT,
    LOST_WRITE,
    NONMONOTONIC_POLL,
    NONMONOTONIC_SEND,
    POLL_SKIP,
    SEND_POLL_MISMATCH,
    UNSEEN,
    VANISHED_READ,
    AnomalyKind,
)
from chaos.history import TopicMode, topic_of

SHOWN_PER_KIND_AND_KEY = 32
"""Anomalies kept with their evidence; the rest are counted. One lost log would otherwise fill the memory."""

OF_LOST_VALUES: Final = (UNSEEN, LOST_WRITE, VANISHED_READ)
OF_READERS_BEYOND: Final = (NONMONOTONIC_POLL, INT_NONMONOTONIC_POLL, POLL_SKIP, INT_POLL_SKIP)
"""Their `after` is the last offset that a reader was given, before."""
Judged = Literal["forbidden", "allowed", "expected"]


class LostRecords(NamedTuple):
    """What one partition may have lost."""

    values: frozenset[int] = frozenset()
    offsets: frozenset[int] = frozenset()  # where they were, as far as an ack or a poll said


NOTHING_LOST: Final = LostRecords()
ExpectedLosses = Mapping[str, LostRecords]
"""By key."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    key: str  # the partition; of a cycle that spans several, all of them
    allowed: bool
    summary: str  # one sentence with operations, offsets and values
    evidence: tuple[int, ...]  # operations, by their index in the history
    detail: Mapping[str, Any]
    expected: bool = False  # allowed because the run's ledger has it (chaos/ledger.py), not by its mode


@dataclass(frozen=True, slots=True)
class Count:
    forbidden: int = 0
    allowed: int = 0
    expected: int = 0  # of those that are allowed


@dataclass(frozen=True, slots=True)
class Verdict:
    ok: bool  # everything was judged, and there is no anomaly that the mode of its topic forbids
    anomalies: tuple[Anomaly, ...]  # forbidden ones first, then in the order of the table
    counts: Mapping[str, Count]  # by kind; kinds that were not found are left out
    not_judged: Mapping[str, str]  # kind -> why
    stats: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            ok=fields["ok"],
            anomalies=tuple(
                Anomaly(**{**anomaly, "evidence": tuple(anomaly["evidence"])})
                for anomaly in fields["anomalies"]
            ),
            counts={kind: Count(**count) for kind, count in fields["counts"].items()},
            not_judged=dict(fields["not_judged"]),
            stats=dict(fields["stats"]),
        )


@dataclass(slots=True)
class Findings:
    """Where the parts of the checker put what they find; decides by the topic's mode what is tolerated."""

    topics: Mapping[str, TopicMode]
    not_judged: dict[str, str] = field(default_factory=dict)
    expected_losses: ExpectedLosses = field(default_factory=dict)
    _anomalies: list[Anomaly] = field(default_factory=list)
    _found: dict[tuple[str, str, Judged], int] = field(
        default_factory=dict
    )  # (kind, key, judged) -> how many

    def add(
        self,
        kind: AnomalyKind,
        keys: str | Sequence[str],
        summary: str,
        evidence: Sequence[int],
        **detail: Any,
    ) -> None:
        keys = [keys] if isinstance(keys, str) else keys
        # What concerns no partition (a commit of offsets alone, by a zombie) no mode tolerates.
        allowed = bool(keys) and all(kind.tolerated(self.topics[topic_of(key)]) for key in keys)
        expected = not allowed and len(keys) == 1 and self._is_expected(kind, keys[0], detail)
        judged: Judged = "expected" if expected else "allowed" if allowed else "forbidden"
        key = ", ".join(keys)
        count = self._found.get((kind.name, key, judged), 0)
        self._found[kind.name, key, judged] = count + 1
        if count < SHOWN_PER_KIND_AND_KEY:
            operations = tuple(sorted(set(evidence)))
            self._anomalies.append(
                Anomaly(kind.name, key, allowed or expected, summary, operations, detail, expected)
            )

    def _is_expected(self, kind: AnomalyKind, key: str, detail: Mapping[str, Any]) -> bool:
        """Whether all that is wrong is that records are gone which may be."""
        lost = self.expected_losses.get(key, NOTHING_LOST)
        if kind in OF_LOST_VALUES:
            return detail["value"] in lost.values
        if kind is SEND_POLL_MISMATCH:  # one of the two is in the place of the other
            return not lost.values.isdisjoint((detail["value"], detail["other"]))
        if kind is INCONSISTENT_OFFSETS:
            return len(set(detail["values"]) - lost.values) <= 1
        if kind is NONMONOTONIC_SEND:
            return detail["values"][0] in lost.values
        if kind in OF_READERS_BEYOND:
            return detail["after"] in lost.offsets
        if kind is BACKDATED_SEND:
            return detail["least"] - 1 in lost.offsets
        if kind is GROUP_SKIP:  # it was beyond when the log became shorter
            return detail["offset"] in lost.offsets
        return kind is LOST_COMMIT and detail["committed"] - 1 in lost.offsets

    def verdict(self, stats: Mapping[str, int]) -> Verdict:
        order = {kind.name: index for index, kind in enumerate(KINDS)}
        anomalies = sorted(self._anomalies, key=lambda a: (a.allowed, order[a.kind], a.key))
        counts = {kind.name: self._count(kind.name) for kind in KINDS}
        return Verdict(
            ok=not self.not_judged and not any(count.forbidden for count in counts.values()),
            anomalies=tuple(anomalies),
            counts={kind: count for kind, count in counts.items() if count != Count()},
            not_judged=self.not_judged,
            stats=stats,
        )

    def _count(self, kind: str) -> Count:
        def total(which: Judged) -> int:
            return sum(n for (name, _, judged), n in self._found.items() if name == kind and judged == which)

        expected = total("expected")
        return Count(total("forbidden"), total("allowed") + expected, expected)
