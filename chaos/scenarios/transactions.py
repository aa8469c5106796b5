"""Faults of transactions and groups: their coordinators are killed, their clients crash, zombies keep
writing, members join and leave."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from chaos.evidence import Evidence
from chaos.history import Poll, topic_of
from chaos.scenarios import expect
from chaos.scenarios.expect import ELECTION_S, Expectation, named
from chaos.scenarios.scenario import Scenario, always
from chaos.scenarios.settings import QUICK_TRANSACTIONS, SHORT_SESSION
from chaos.workload import Endings, Mix, Pace, TopicSpec

SESSION_S: Final = 3.0
SHORT_TRANSACTIONS: Final = Pace(transaction_timeout_s=6.0)
GAP_S: Final = SESSION_S + 3 * ELECTION_S + SHORT_TRANSACTIONS.transaction_timeout_s
"""A new leader or coordinator, and then one whole transaction that was started before."""
LEAST_ZOMBIES: Final = 10

WRITTEN: Final = TopicSpec("txn", transactional=True)
COPIED: Final = TopicSpec("copied", transactional=True, copy_of="txn")


def all_copied(evidence: Evidence) -> tuple[bool, str]:
    """By counting what the final phase read: every value has a copy, and there are no others."""
    polled: dict[str, set[tuple[str, int]]] = {WRITTEN.name: set(), COPIED.name: set()}
    for operation in evidence.history.operations:
        for micro in operation.ops if operation.final else ():
            if isinstance(micro, Poll):
                for key, pairs in micro.messages.items():
                    polled.setdefault(topic_of(key), set()).update((key, at) for at, _ in pairs)
    inputs, outputs = len(polled[WRITTEN.name]), len(polled[COPIED.name])
    return inputs == outputs > 0, f"{inputs:,} committed inputs, {outputs:,} committed outputs"


def _every_ending(evidence: Evidence) -> tuple[bool, str]:
    transactions = [operation for operation in evidence.history.operations if operation.f == "txn"]
    outcomes = {how: sum(each.outcome == how for each in transactions) for how in ("ok", "fail", "info")}
    detail = f"{outcomes['ok']:,} committed, {outcomes['fail']:,} not, {outcomes['info']:,} unknown"
    return outcomes["ok"] > 0 and outcomes["fail"] > 0, detail


COPIED_ONCE: Final = named("every input is in exactly one committed output", all_copied)

TRANSACTIONS: Final = Scenario(
    name="transactions",
    story="Clients commit, abort, crash in the midst of transactions, and consume, transform and produce; "
    "leaders and both kinds of coordinators are killed: all or nothing, and every input once.",
    topics=(WRITTEN, COPIED),
    settings={**SHORT_SESSION, **QUICK_TRANSACTIONS},
    mix=Mix(endings=Endings(commit=70, abort=20, crash=5, zombie=5)),
    pace=SHORT_TRANSACTIONS,
    schedule=always(
        """
        at 1 for 1.2: kill coordinator(writer)
        at 4 for 1.2: kill leader(txn-0)
        at 7 for 1.2: kill coordinator(copies)
        """
    ),
    expectations=(
        COPIED_ONCE,
        named("transactions end in every way", _every_ending),
        expect.gap("txn", "kill", GAP_S),
        expect.gap("copied", "kill", GAP_S),
    ),
)


# zombie-producer --------------------------------------------------------------------------------------------


def _fenced(evidence: Evidence) -> tuple[bool, str]:
    """A zombie is known by its number: its successor has acted under a later one before it ended."""
    latest: dict[str, int] = {}
    zombies = committed = 0
    for operation in evidence.history.operations:
        if operation.txn is None:
            continue
        if operation.f == "init":
            latest[operation.txn.id] = operation.process
        elif operation.process < latest.get(operation.txn.id, 0):
            zombies += 1
            committed += operation.outcome == "ok"
    detail = f"{zombies} zombies wrote on, {committed} of them committed"
    return zombies >= LEAST_ZOMBIES and not committed, detail


ZOMBIE_PRODUCER: Final = Scenario(
    name="zombie-producer",
    story="Producers lose their transactional id to another in the midst of a transaction, and write on: "
    "nothing of that is ever committed, whoever coordinates.",
    topics=(WRITTEN, COPIED),
    settings={**SHORT_SESSION, **QUICK_TRANSACTIONS},
    mix=Mix(endings=Endings(commit=50, abort=10, crash=0, zombie=40)),
    pace=SHORT_TRANSACTIONS,
    schedule=always(
        """
        at 3 for 1.5: kill coordinator(writer)
        at 8 for 1.5: kill leader(txn-0)
        at 13 for 1.5: kill coordinator(writer)
        """
    ),
    expectations=(COPIED_ONCE, named("zombies are fenced", _fenced)),
)


# group-churn ------------------------------------------------------------------------------------------------

CHURNING: Final = 9


def _never_back(evidence: Evidence) -> tuple[bool, str]:
    seen = back = 0
    for offsets in evidence.committed().values():
        seen += len(offsets)
        back += sum(later < sooner for sooner, later in pairwise(offsets))
    return back == 0 and seen > 0, f"{seen} changes of committed offsets, {back} of them backwards"


def _delivered(evidence: Evidence) -> tuple[bool, str]:
    """What is below the group's committed offset was given to one of its members, or was never there."""
    is_member: dict[int, bool] = {}
    given: dict[str, set[int]] = {}
    there: dict[str, set[int]] = {}
    for operation in evidence.history.operations:
        if operation.f in ("assign", "subscribe"):
            is_member[operation.process % CHURNING] = operation.f == "subscribe"
        for micro in operation.ops if operation.f == "poll" else ():
            assert isinstance(micro, Poll)
            for key, pairs in micro.messages.items():
                if operation.final:
                    there.setdefault(key, set()).update(offset for offset, _ in pairs)
                elif is_member.get(operation.process % CHURNING):
                    given.setdefault(key, set()).update(offset for offset, _ in pairs)
    group = f"chaos-{evidence.history.header.seed}"
    committed = {key: offsets[-1] for (who, key), offsets in evidence.committed().items() if who == group}
    due = {(key, offset) for key in committed for offset in there.get(key, ()) if offset < committed[key]}
    missed = sorted((key, offset) for key, offset in due if offset not in given.get(key, ()))
    where = f", the first at {missed[0][0]} offset {missed[0][1]}" if missed else ""
    return bool(
        due
    ) and not missed, f"{len(due):,} records below committed offsets, {len(missed)} missed{where}"


OFFSETS_NEVER_GO_BACK: Final[Expectation] = named("committed offsets never go back", _never_back)

GROUP_CHURN: Final = Scenario(
    name="group-churn",
    story="Members join, leave and crash while their coordinator is killed: nothing is passed over, "
    "committed offsets never go back, and those who copy do so once.",
    topics=(WRITTEN, COPIED, TopicSpec("plain", partitions=3, idempotent=True)),
    clients=CHURNING,
    settings={**SHORT_SESSION, **QUICK_TRANSACTIONS},
    # A static member that crashes is waited for until its session of 6 s is over: with many of them hardly a
    # rebalance comes to an end before its timeout, and nobody is given anything.
    mix=Mix(assign=0, subscribe=1, crash=0.2, endings=Endings(commit=85, abort=5, crash=8, zombie=2)),
    pace=SHORT_TRANSACTIONS,
    watches_groups=True,
    schedule=always(
        """
        at 4 for 1.5: kill coordinator
        at 10 for 1.5: kill coordinator(copies)
        at 16 for 1.5: kill coordinator
        at 22 for 1.5: kill leader(plain-0)
        """
    ),
    expectations=(COPIED_ONCE, OFFSETS_NEVER_GO_BACK, named("the group passes nothing over", _delivered)),
)

SCENARIOS: Final = (TRANSACTIONS, ZOMBIE_PRODUCER, GROUP_CHURN)
