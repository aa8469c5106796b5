"""Partitions are reassigned while clients write, and nodes fail meanwhile."""

from __future__ import annotations

from typing import Final

from chaos.evidence import Evidence
from chaos.scenarios import expect
from chaos.scenarios.expect import ELECTION_S, named
from chaos.scenarios.scenario import Scenario, always
from chaos.scenarios.settings import QUICK_TRANSACTIONS, SHORT_SESSION
from chaos.scenarios.transactions import (
    COPIED,
    COPIED_ONCE,
    GAP_S,
    SESSION_S,
    SHORT_TRANSACTIONS,
    WRITTEN,
)
from chaos.workload import TopicSpec

NODES: Final = 4


def _where_they_were_sent(evidence: Evidence) -> tuple[bool, str]:
    """By the last observation: the in-sync replicas are exactly those of the last move."""
    sent: dict[str, set[int]] = {}
    for span in evidence.spans("move"):
        _, key, _, replicas = span.fault.split()
        sent[key] = set(map(int, replicas.split(",")))
    elsewhere = []
    for key in sent.keys() & set(evidence.keys):  # internal topics are not recorded
        seen = evidence.partition(key)[-1].isr
        if set(seen) != sent[key]:
            elsewhere.append(f"{key} is on {sorted(seen)}, not on {sorted(sent[key])}")
    moves = f"{len(evidence.spans('move'))} moves of {len(sent)} partitions"
    return bool(sent) and not elsewhere, "; ".join(elsewhere) or f"{moves}, all where they were sent last"


REASSIGNMENT: Final = Scenario(
    name="reassignment",
    story="Partitions move round the cluster under load; nodes that they come from and go to are killed, and "
    "the controller too: nothing is lost, and every one arrives.",
    nodes=NODES,
    topics=(WRITTEN, COPIED, TopicSpec("all", partitions=2, idempotent=True)),
    settings={**SHORT_SESSION, **QUICK_TRANSACTIONS},
    pace=SHORT_TRANSACTIONS,
    schedule=always(
        """
        at 1: move all-0 to 4,1,2
        at 1.1: move txn-0 to 2,3,4
        at 1.2: move copied-0 to 3,4,1
        at 2.5 for 2: kill 4
        at 3: move all-1 to 4,2,3
        at 3.1: move txn-1 to 4,1,2
        at 6: move all-0 to 3,2,1
        at 6.1 for 1.5: kill leader(all-0)
        at 9: move txn-0 to 1,4,3
        at 9.1: move __transaction_state-0 to 4,3,2
        at 9.2: move __consumer_offsets-0 to 1,2,4
        at 9.3 for 1.5: kill controller
        at 12: move all-1 to 1,3,4
        at 12.1 for 1.5: kill 1
        at 12.3: move copied-0 to 2,1,3
        """
    ),
    expectations=(
        COPIED_ONCE,
        named("every partition arrives", _where_they_were_sent),
        expect.gap("all", "kill", SESSION_S + 3 * ELECTION_S),
        expect.gap("txn", "kill", GAP_S),
    ),
)
