"""Expectations that several scenarios share: each measures, compares, and returns the figure with its
bound."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from chaos.events import ENDED_ITSELF, SKIPPED
from chaos.evidence import NS, Evidence
from metadata_quorum.foundation.errors import ExitCode

ELECTION_S: Final = 1.4
"""The longest election timeout: a voter that receives no heartbeat for so long becomes a candidate."""
CONTROLLER_BACK_S: Final = 5.0
CATCH_UP_S: Final = 10.0
BY_DISK: Final = ("disk-", "fail-sync", "tear", "flip")


class Finding(NamedTuple):
    """What became of one expectation, with the figure that was measured."""

    name: str
    ok: bool
    detail: str


Expectation = Callable[[Evidence], Finding]


def within(name: str, measured_s: float | None, bound_s: float, what: str) -> Finding:
    """`what` with its figure: "acks=all stopped for"."""
    if measured_s is None:
        return Finding(name, False, f"{what}: never; bound {bound_s:.1f} s")
    return Finding(name, measured_s <= bound_s, f"{what} {measured_s:.1f} s, bound {bound_s:.1f} s")


def nothing_forbidden(evidence: Evidence) -> Finding:
    verdict = evidence.verdict
    counts = verdict.counts
    forbidden = [f"{kind}: {count.forbidden}" for kind, count in counts.items() if count.forbidden]
    stats = verdict.stats
    acknowledged = f"{stats['acknowledged']:,} of {stats['sent']:,} sends acknowledged"
    unjudged = [f"{kind} not judged: {why}" for kind, why in verdict.not_judged.items()]
    detail = ", ".join([*forbidden, *unjudged]) or f"{acknowledged}, {stats['polled']:,} messages polled"
    return Finding("no forbidden anomaly", verdict.ok, detail)


def all_was_read(evidence: Evidence) -> Finding:
    unread = evidence.healing.unread if evidence.healing is not None else {}
    late = ", ".join(f"{key} only to offset {offset}" for key, offset in sorted(unread.items()))
    return Finding("the final phase read everything", not unread, late or "every partition to its end")


def heals(session_s: float, lag_s: float) -> Expectation:
    """§2's bounds, from the time when the last fault was lifted."""
    bounds = (CONTROLLER_BACK_S, session_s + 3 * ELECTION_S, lag_s + CATCH_UP_S)

    def healed(evidence: Evidence) -> Finding:
        healing = evidence.healing
        assert healing is not None
        took = (healing.controller_s, healing.leaders_s, healing.isr_s)
        names = ("controller", "leaders", "full ISR")
        ok = all(value is not None and value <= bound for value, bound in zip(took, bounds, strict=True))
        detail = ", ".join(
            f"{name} {'never' if value is None else f'{value:.1f} s'} (bound {bound:.1f} s)"
            for name, value, bound in zip(names, took, bounds, strict=True)
        )
        return Finding("healed within bounds", ok, detail)

    return healed


def nobody_ended_itself(evidence: Evidence) -> Finding:
    """A node whose disk failed may end; one whose invariant broke may not."""
    unexpected = []
    ended = evidence.points(ENDED_ITSELF)
    for event in ended:
        detail = event.detail or ""
        match = re.match(r"node (\d+), with code (\d+)", detail)
        on_disk = [
            span
            for prefix in BY_DISK
            for span in evidence.spans(prefix)
            if match is not None and span.fault.split()[1] == match[1] and span.start <= event.time
        ]
        if not on_disk or match is None or int(match[2]) != ExitCode.DISK_FAILED:
            unexpected.append(detail)
    detail = "; ".join(unexpected) or (f"{len(ended)} by their failed disks" if ended else "none did")
    return Finding("no node ended on its own", not unexpected, detail)


def nothing_skipped(evidence: Evidence) -> Finding:
    skipped = [event.detail or "" for event in evidence.points(SKIPPED)]
    return Finding(
        "every step was played", not skipped, "; ".join(skipped) or f"{len(evidence.spans())} faults"
    )


def clients_worked(least_acks: int) -> Expectation:
    """A verdict over idle clients would mean nothing."""

    def worked(evidence: Evidence) -> Finding:
        acks = {
            name: evidence.statistics.acks(name, 0, evidence.end)
            for name, mode in evidence.history.header.topics.items()
        }
        return Finding(
            "clients had work",
            all(count >= least_acks for count in acks.values()),
            ", ".join(f"{name} {count:,} acks" for name, count in acks.items())
            + f", at least {least_acks} each",
        )

    return worked


def takes_writes_again(evidence: Evidence) -> Finding:
    """Every partition, since the last fault was lifted: that the metadata is whole again does not show it."""
    name, last_acks = "every partition takes writes after the heal", evidence.statistics.last_acks()
    return _since_the_heal(name, evidence, last_acks)


def is_read_again(evidence: Evidence) -> Finding:
    """Every partition, by a member of the readers' group: one that nobody owns holds nothing else up."""
    name, last_given = "the group reads every partition after the heal", evidence.statistics.last_given()
    return _since_the_heal(name, evidence, last_given)


def _since_the_heal(name: str, evidence: Evidence, last: Mapping[str, int]) -> Finding:
    keys = [
        f"{topic}-{number}"
        for topic, mode in evidence.history.header.topics.items()
        for number in range(mode.partitions)
    ]
    left = [key for key in keys if last.get(key, -1) < evidence.calm]
    return Finding(name, not left, f"not {', '.join(left)}" if left else f"all {len(keys)}")


def gap(topic: str, fault: str, bound_s: float, after_s: float = 0.0) -> Expectation:
    """The topic's acks never stop for longer, from the fault's beginning to its end and `after_s` more."""

    name = f"{topic}: acks go on"

    def measured(evidence: Evidence) -> Finding:
        start = evidence.span(fault).start
        end = min(max(span.end for span in evidence.spans(fault)) + int(after_s * NS), evidence.end)
        return within(name, evidence.longest_gap_s(topic, start, end), bound_s, "longest gap between acks")

    return tried(name, measured)


def named(name: str, judge: Callable[[Evidence], tuple[bool, str]]) -> Expectation:
    """From a function that says whether, and the figure. A fault that never came fails it."""

    return tried(name, lambda evidence: Finding(name, *judge(evidence)))


def tried(name: str, expectation: Expectation) -> Expectation:
    """Where it cannot be checked because something never happened, it does not hold."""

    def judged(evidence: Evidence) -> Finding:
        try:
            return expectation(evidence)
        except LookupError as why:
            return Finding(name, False, str(why))

    return judged
