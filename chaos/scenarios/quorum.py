"""What happens to the controllers and their majority."""

from __future__ import annotations

from typing import Final

from chaos.evidence import NS, Evidence
from chaos.scenarios import expect
from chaos.scenarios.expect import ELECTION_S, named
from chaos.scenarios.leadership import FAILOVER_S, IN_FLIGHT_NS
from chaos.scenarios.scenario import Scenario, always
from chaos.scenarios.settings import ALL, IDEMPOTENT, ONE

NEW_CONTROLLER_S: Final = 3 * ELECTION_S
FALLBACK_S: Final = 3.0
"""A leader that hears from no majority for so long steps down."""
SETTLED_S: Final = 2.0
"""The last change of the controller lies at least so long before the heal."""


def _replaced_within(fault: str, bound_s: float) -> expect.Expectation:
    def replaced(evidence: Evidence) -> tuple[bool, str]:
        took: list[float | None] = []
        for span in evidence.spans(fault):
            terms = evidence.terms
            before = max((term.term for term in terms if term.time <= span.start), default=0)
            later = [term.time for term in terms if term.time > span.start and term.term > before]
            took.append((later[0] - span.start) / NS if later else None)
        ok = bool(took) and all(each is not None and each <= bound_s for each in took)
        figures = ", ".join("never" if each is None else f"{each:.1f} s" for each in took)
        return ok, f"new controller after {figures}; bound {bound_s:.1f} s"

    return named("a new controller", replaced)


CONTROLLER_KILL: Final = Scenario(
    name="controller-kill",
    story="The active controller is killed, three times, and each time it is whoever controls by then.",
    topics=(IDEMPOTENT, ONE),
    schedule=always("\n".join(f"at {1 + 3 * n} for 1.5: kill controller" for n in range(3))),
    expectations=(_replaced_within("kill", NEW_CONTROLLER_S), expect.gap("all", "kill", FAILOVER_S)),
)


# majority-loss ----------------------------------------------------------------------------------------------


def _nothing_without_majority(evidence: Evidence) -> tuple[bool, str]:
    spans = evidence.spans("kill")
    start = max(span.start for span in spans) + IN_FLIGHT_NS
    end = min(span.end for span in spans)
    acks = evidence.statistics.acks("all", start, end)
    terms = [term for term in evidence.terms if start < term.time <= end]
    without_s = (end - start) / NS
    detail = f"{acks} acks=all, {len(terms)} new controllers in {without_s:.1f} s without a majority"
    return acks == 0 and not terms and without_s > 0, detail


MAJORITY_LOSS: Final = Scenario(
    name="majority-loss",
    story="Two of three nodes die: nothing is committed until one is back; then everything continues.",
    topics=(ALL, ONE),
    schedule=always("at 1 for 4: kill follower(all-0)\nat 1.1 for 5: kill other(all-0)"),
    expectations=(
        named("nothing is committed without a majority", _nothing_without_majority),
        expect.gap("all", "kill", 5.0 + FAILOVER_S, after_s=FAILOVER_S),
    ),
)


# deaf-leader ------------------------------------------------------------------------------------------------


def _terms_stop(evidence: Evidence) -> tuple[bool, str]:
    span = evidence.span("deafen")
    inside = [term for term in evidence.terms if span.start < term.time <= span.end]
    if not inside:
        return False, "no new term was seen"
    settled_s = (span.end - inside[-1].time) / NS
    before = max((term.term for term in evidence.terms if term.time <= span.start), default=0)
    return (
        settled_s >= SETTLED_S,
        f"terms {before} to {inside[-1].term}, the last {settled_s:.1f} s before the heal",
    )


DEAF_LEADER: Final = Scenario(
    name="deaf-leader",
    story="The active controller speaks and hears nobody: it steps down, another one is elected, and terms "
    "do not grow on.",
    topics=(ALL, ONE),
    schedule=always("at 1 for 12: deafen controller"),
    expectations=(
        _replaced_within("deafen", FALLBACK_S + NEW_CONTROLLER_S),
        named("terms stop growing", _terms_stop),
        expect.gap("all", "deafen", FALLBACK_S + FAILOVER_S, after_s=FAILOVER_S),
    ),
)

SCENARIOS: Final = (CONTROLLER_KILL, MAJORITY_LOSS, DEAF_LEADER)
