"""What happens when a disk fails under a leader."""

from __future__ import annotations

from itertools import dropwhile
from typing import Final

from chaos.evidence import NS, Evidence
from chaos.scenarios import expect
from chaos.scenarios.expect import Finding, named
from chaos.scenarios.leadership import FAILOVER_S
from chaos.scenarios.scenario import Scenario, always
from chaos.scenarios.settings import IDEMPOTENT, SHORT_LAG


def _leader_moves(evidence: Evidence) -> Finding:
    name = "all-0: the leader moves"
    span = evidence.span("disk-full")
    victim = int(span.fault.split()[1])
    moved = [
        seen.time for seen in evidence.partition("all-0") if seen.time > span.start and seen.leader != victim
    ]
    return expect.within(name, (moved[0] - span.start) / NS if moved else None, FAILOVER_S, "after")


DISK_FULL: Final = Scenario(
    name="disk-full",
    story="The leader's disk is full: it acknowledges nothing, another one leads, and with space it is back.",
    topics=(IDEMPOTENT,),
    settings=SHORT_LAG,
    schedule=always("at 1 for 5: disk-full leader(all-0)"),
    expectations=(
        expect.tried("all-0: the leader moves", _leader_moves),
        expect.gap("all", "disk-full", FAILOVER_S),
    ),
)


# bit-flip ---------------------------------------------------------------------------------------------------


def _stays_out(evidence: Evidence) -> tuple[bool, str]:
    """It leaves when its death is noticed, or when it registers again; from then on to its repair."""
    flipped, wiped = evidence.span("flip"), evidence.span("wipe")
    victim = int(flipped.fault.split()[1])
    seen = [each for each in evidence.partition("all-0") if flipped.start < each.time <= wiped.start]
    outside = list(dropwhile(lambda each: victim in each.isr, seen))
    is_kept_out = bool(outside) and not any(victim in each.isr for each in outside)
    is_repaired = int(wiped.fault.split()[1]) == victim
    became = "kept out until it was repaired" if is_kept_out else "taken back"
    damage = (flipped.detail or "").rpartition("; ")[2]
    return is_kept_out and is_repaired, f"node {victim}: {damage}; {became}"


BIT_FLIP: Final = Scenario(
    name="bit-flip",
    story="A bit flips in the middle of the leader's log while it is down: that replica stays out, with the "
    "good data behind the bad bit, until somebody removes it; then it is filled again from the others.",
    topics=(IDEMPOTENT,),
    settings=SHORT_LAG,
    schedule=always(
        """
        at 2 for 1: flip leader(all-0) all-0
        at 7: wipe lagging(all-0) all-0
        """
    ),
    expectations=(
        named("all-0: the damaged replica stays out of the ISR", _stays_out),
        expect.gap("all", "flip", FAILOVER_S, after_s=FAILOVER_S),
    ),
)

SCENARIOS: Final = (DISK_FULL, BIT_FLIP)
