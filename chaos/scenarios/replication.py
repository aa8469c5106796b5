"""What happens between a leader and its followers."""

from __future__ import annotations

import json
from typing import Final

from chaos.evidence import NS, Evidence, Span
from chaos.run_files import TWIN, VERDICT
from chaos.scenarios import expect
from chaos.scenarios.expect import CATCH_UP_S, Finding, named
from chaos.scenarios.scenario import Scenario, always
from chaos.scenarios.settings import ALL, IDEMPOTENT, ONE, SHORT_LAG
from chaos.workload.workload import Pace

LAG_S: Final = 3.0
SHRINK_S: Final = 1.5 * LAG_S
"""Kafka looks at the ISR every half of the lag limit."""
CLIENT_S: Final = 1.0
"""What clients may add: a retry, a metadata refresh."""


# isr-shrink -------------------------------------------------------------------------------------------------


def _left(evidence: Evidence, key: str, span: Span) -> tuple[int, float] | None:
    """Who left the ISR after the beginning of the fault, and after how long."""
    before = evidence.partition_at(key, span.start)
    for seen in evidence.partition(key):
        gone = set(before.isr) - set(seen.isr) if before is not None else set()
        if seen.time > span.start and gone:
            return min(gone), (seen.time - span.start) / NS
    return None


def _shrinks(key: str, fault: str, bound_s: float) -> expect.Expectation:
    name = f"{key}: the ISR shrinks"

    def shrinks(evidence: Evidence) -> Finding:
        left = _left(evidence, key, evidence.span(fault))
        return expect.within(name, None if left is None else left[1], bound_s, "after")

    return expect.tried(name, shrinks)


def _grows_back(key: str, fault: str) -> expect.Expectation:
    name = f"{key}: the ISR grows back"

    def grows(evidence: Evidence) -> Finding:
        end = evidence.span(fault).end
        full = len(evidence.partition(key)[0].isr)
        since = [seen.time for seen in evidence.partition(key) if seen.time > end and len(seen.isr) == full]
        return expect.within(name, (since[0] - end) / NS if since else None, CATCH_UP_S, "after")

    return expect.tried(name, grows)


def _stops_and_continues(evidence: Evidence) -> tuple[bool, str]:
    span = evidence.span("cut")
    stopped_s = evidence.longest_gap_s("all", span.start, span.end)
    left = _left(evidence, "all-0", span)
    later = evidence.statistics.acks("all", span.start + int((left[1] if left else 0) * NS), span.end)
    bound_s = SHRINK_S + CLIENT_S
    return (
        left is not None and 1.0 < stopped_s <= bound_s and later > 0,
        f"acks=all stopped for {stopped_s:.1f} s, bound {bound_s:.1f} s; then {later} acks before the heal",
    )


ISR_SHRINK: Final = Scenario(
    name="isr-shrink",
    story="A follower hears its leader and is not heard by it: acks=1 continues, acks=all waits until the "
    "ISR has shrunk, and after the heal the follower is taken back.",
    topics=(ALL, ONE),
    settings=SHORT_LAG,
    schedule=always("at 1 for 7: cut follower(all-0)>leader(all-0)"),
    expectations=(
        expect.gap("one", "cut", CLIENT_S),
        named("acks=all stops, then continues", _stops_and_continues),
        _shrinks("all-0", "cut", SHRINK_S + CLIENT_S),
        _grows_back("all-0", "cut"),
    ),
)


# hw-truncation ----------------------------------------------------------------------------------------------


LOSSES: Final = ("lost-write", "unseen", "vanished-read")


def _twin_loses(evidence: Evidence) -> tuple[bool, str]:
    path = evidence.directory / TWIN / VERDICT
    if not path.exists():
        raise LookupError("the planted twin has not been run")
    counts = json.loads(path.read_text())["checker"]["counts"]
    lost = {kind: counts[kind]["forbidden"] for kind in LOSSES if kind in counts}
    return any(lost.values()), ", ".join(
        f"{kind}: {count}" for kind, count in lost.items()
    ) or "nothing is lost there"


HW_TRUNCATION: Final = Scenario(
    name="hw-truncation",
    story="Two leaders die one after the other. A follower that truncates its log to its high watermark, as "
    "Kafka's did before KIP-101, loses what was acknowledged; one that asks where its epoch ended loses "
    "nothing.",
    topics=(IDEMPOTENT,),
    # The followers' fetches wait for records, not for news of the high watermark: of the last record before a
    # pause between two writes they do not know that it is committed. So there have to be such pauses.
    pace=Pace(operations_per_s=20.0),
    settings={"replica.fetch.wait.max.ms": "5000"},
    # Between the two kills the follower must have started to follow the new leader, however busy the machine.
    schedule=always(
        """
        at 1: hold-reads next(all-0) all-0
        at 2 for 3: kill leader(all-0)
        at 2.1: await leader(all-0)
        at 3.6 for 2: kill leader(all-0)
        """
    ),
    twin_plant="truncate-to-hw",
    expectations=(
        named("the same schedule loses records with truncation to the high watermark", _twin_loses),
    ),
)


# slow-follower ----------------------------------------------------------------------------------------------


def _stays_in_sync(evidence: Evidence) -> tuple[bool, str]:
    span = evidence.span("slow")
    isrs = {seen.isr for seen in evidence.partition("one-0") if span.start < seen.time <= span.end}
    before = evidence.partition_at("one-0", span.start)
    isrs |= {before.isr} if before is not None else set()
    return all(
        len(isr) == 3 for isr in isrs
    ), f"ISR {' then '.join(map(str, sorted(isrs)))} at 0.3 s of latency"


SLOW_FOLLOWER: Final = Scenario(
    name="slow-follower",
    story="A follower is far away: with latency alone it stays in sync, with too little bandwidth it leaves "
    "the ISR and nobody waits for it, and when it is faster again it catches up.",
    topics=(ALL, ONE),
    settings=SHORT_LAG,
    schedule=always(
        """
        at 1 for 4: slow leader(one-0)>follower(one-0) 300ms 50ms
        at 6 for 8: bandwidth leader(one-0)>follower(one-0) 2KB/s
        """
    ),
    expectations=(
        named("one-0: latency alone does not cost the ISR", _stays_in_sync),
        expect.gap("one", "slow", CLIENT_S),
        expect.gap("one", "bandwidth", CLIENT_S),
        _shrinks("one-0", "bandwidth", SHRINK_S + CLIENT_S),
        _grows_back("one-0", "bandwidth"),
    ),
)


# flapping-link ----------------------------------------------------------------------------------------------


def _few_changes(evidence: Evidence) -> tuple[bool, str]:
    spans = evidence.spans("cut")
    start, end = spans[0].start, evidence.calm + NS
    epochs = {seen.leader_epoch for seen in evidence.partition("all-0") if start < seen.time <= end}
    terms = {seen.term for seen in evidence.terms if start < seen.time <= end}
    return (
        len(epochs) <= 2 and len(terms) <= 2,
        f"{len(spans)} cuts, {len(epochs)} new leader epochs, {len(terms)} new controllers; at most 2 each",
    )


FLAPPING_LINK: Final = Scenario(
    name="flapping-link",
    story="The link between a leader and a follower comes and goes: connections are replaced, leaders stay.",
    topics=(ALL, ONE),
    settings=SHORT_LAG,
    schedule=always(
        "\n".join(f"at {1 + 0.9 * n:g} for 0.4: cut leader(all-0)-follower(all-0)" for n in range(8))
    ),
    expectations=(
        named("no storm of elections", _few_changes),
        expect.gap("all", "cut", SHRINK_S, after_s=1.0),  # a follower that is not in time leaves
        expect.gap("one", "cut", CLIENT_S, after_s=1.0),
    ),
)

SCENARIOS: Final = (ISR_SHRINK, HW_TRUNCATION, SLOW_FOLLOWER, FLAPPING_LINK)
