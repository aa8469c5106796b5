"""What happens to leaders and coordinators: killed, restarted, cut off, elected though they lack records."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from chaos.evidence import NS, Evidence
from chaos.history import Poll, Send
from chaos.scenarios import expect
from chaos.scenarios.expect import ELECTION_S, named
from chaos.scenarios.scenario import DEFAULT_SESSION_S, Scenario, always
from chaos.scenarios.settings import ALL, IDEMPOTENT, ONE, SHORT_SESSION
from chaos.workload import Mix, TopicSpec
from chaos.workload.workload import Pace

FAILOVER_S: Final = DEFAULT_SESSION_S + 3 * ELECTION_S
SHORT_SESSION_S: Final = 3.0
MOVE_S: Final = 2.0
"""A stopping node hands its leaders over within this."""
IN_FLIGHT_NS: Final = NS // 2
"""How long an ack from before a cut may take to arrive."""
CLIENT_S: Final = 4.0
"""A client's requests to the old leader time out, and it looks for the new one."""
MEMBERS_S: Final = 10.0
"""A group finds its new coordinator, and one rebalance after it."""

LEADER_KILL: Final = Scenario(
    name="leader-kill",
    story="The leader is killed, five times, and each time it is whoever leads by then.",
    topics=(IDEMPOTENT, TopicSpec("plain", partitions=1)),
    schedule=always("\n".join(f"at {1 + 2.5 * n:g} for 1.2: kill leader(all-0)" for n in range(5))),
    expectations=(expect.gap("all", "kill", FAILOVER_S), expect.gap("plain", "kill", FAILOVER_S)),
)


# rolling-restart --------------------------------------------------------------------------------------------


def _no_failed_write(evidence: Evidence) -> tuple[bool, str]:
    span = evidence.span("rolling")
    outcomes = {
        topic: evidence.statistics.outcomes(topic, span.start, span.end)
        for topic in evidence.history.header.topics
    }
    failed = sum(counts["fail"] + counts["info"] for counts in outcomes.values())
    done = sum(counts["ok"] for counts in outcomes.values())
    return failed == 0 and done > 0, f"{done} writes succeeded and {failed} did not, in {span.seconds:.1f} s"


ROLLING_RESTART: Final = Scenario(
    name="rolling-restart",
    story="All nodes are restarted, one after the other, each when every ISR is full again: no write fails.",
    topics=(IDEMPOTENT, ONE),
    mix=Mix(crash=0),  # a client that is thrown away does not know of its last writes
    counts_failures=True,
    schedule=always("at 1: rolling voter"),
    expectations=(
        named("no failed write", _no_failed_write),
        expect.gap("all", "rolling", MOVE_S),
        expect.gap("one", "rolling", MOVE_S),
    ),
)


# split-brain ------------------------------------------------------------------------------------------------

SPLIT: Final = "partition leader(all-0),c0,c1|follower(all-0),other(all-0),c2,c3"
CLIENTS: Final = 4


def _acks_of(evidence: Evidence, clients: set[int], topic: str, start: int, end: int) -> int:
    return sum(
        isinstance(micro, Send) and micro.key.startswith(topic)
        for operation in evidence.history.operations
        if operation.f == "send" and operation.outcome == "ok" and start < operation.end <= end
        if operation.process % CLIENTS in clients
        for micro in operation.ops
    )


def _minority_commits_nothing(evidence: Evidence) -> tuple[bool, str]:
    span = evidence.span("partition")
    acked = _acks_of(evidence, {0, 1}, "all", span.start + IN_FLIGHT_NS, span.end)
    alone = _acks_of(evidence, {0, 1}, "one", span.start + IN_FLIGHT_NS, span.end)
    return acked == 0, f"{acked} acks=all acknowledged on the smaller side, {alone} acks=1"


def _majority_continues(evidence: Evidence) -> tuple[bool, str]:
    span = evidence.span("partition")
    acks = sorted(
        operation.end
        for operation in evidence.history.operations
        if operation.f == "send" and operation.outcome == "ok" and operation.process % CLIENTS == 2
        if span.start + IN_FLIGHT_NS < operation.end <= span.end
    )
    bound_s = SHORT_SESSION_S + 3 * ELECTION_S + CLIENT_S
    if not acks:
        return False, f"nothing was acknowledged on the larger side; bound {bound_s:.1f} s"
    after_s = (acks[0] - span.start) / NS
    return (
        after_s <= bound_s,
        f"first ack after {after_s:.1f} s, bound {bound_s:.1f} s; {len(acks)} writes in all",
    )


def one_leader_per_epoch(evidence: Evidence) -> tuple[bool, str]:
    leaders: dict[tuple[str, int], set[int]] = {}
    for key in evidence.keys:
        for seen in evidence.partition(key):
            if seen.leader >= 0:
                leaders.setdefault((key, seen.leader_epoch), set()).add(seen.leader)
    twice = [f"{key} epoch {epoch}: {sorted(who)}" for (key, epoch), who in leaders.items() if len(who) > 1]
    return not twice, "; ".join(twice) or f"{len(leaders)} leader epochs seen"


SPLIT_BRAIN: Final = Scenario(
    name="split-brain",
    story="The leader and two clients are on one side, everybody else on the other: it still takes writes, "
    "and acknowledges none that its ISR lacks; what it takes at acks=1 is lost, as acks=1 says.",
    topics=(ALL, TopicSpec("one", partitions=3, acks=1)),
    settings=SHORT_SESSION,
    clients=CLIENTS,
    pace=Pace(delivery_timeout_s=3.0),  # requests to a leader that went silent time out soon
    schedule=always(f"at 1 for 12: {SPLIT}"),
    expectations=(
        named("the smaller side commits nothing", _minority_commits_nothing),
        named("the larger side continues", _majority_continues),
        named("one leader per epoch", one_leader_per_epoch),
    ),
)


# coordinator-kill -------------------------------------------------------------------------------------------


def _members_read_on(evidence: Evidence) -> tuple[bool, str]:
    member: dict[int, bool] = {}
    spans = evidence.spans("kill")
    start, end = spans[0].start, evidence.end
    reads = [start, end]
    for operation in evidence.history.operations:
        if operation.f in ("assign", "subscribe"):
            member[operation.process] = operation.f == "subscribe"
        elif member.get(operation.process) and start <= operation.end <= end:
            received = any(isinstance(micro, Poll) and micro.messages for micro in operation.ops)
            reads += [operation.end] if received else []
    longest_s = max(later - sooner for sooner, later in pairwise(sorted(reads))) / NS
    return longest_s <= MEMBERS_S, f"members were without news for {longest_s:.1f} s, bound {MEMBERS_S:.1f} s"


COORDINATOR_KILL: Final = Scenario(
    name="coordinator-kill",
    story="The coordinator of the readers' group is killed, twice: its members find the next, and read on.",
    topics=(IDEMPOTENT, TopicSpec("plain", partitions=2)),
    mix=Mix(assign=0, subscribe=0.02, crash=0),  # members stay, so that they read on by themselves
    schedule=always("at 3 for 1.5: kill coordinator\nat 8 for 1.5: kill coordinator"),
    expectations=(
        named("the group's members read on", _members_read_on),
        expect.gap("all", "kill", FAILOVER_S),
    ),
)


# unclean-election -------------------------------------------------------------------------------------------


def _named_exactly(evidence: Evidence) -> tuple[bool, str]:
    """What was acknowledged or read and is not in the final read, counted here once more, in plain."""
    acked: set[int] = set()
    seen: set[tuple[int, int]] = set()
    final: dict[int, set[tuple[int, int]]] = {}  # by final reader: the checker names what each one misses
    for operation in evidence.history.operations:
        for micro in operation.ops:
            if isinstance(micro, Send):
                acked |= {micro.value} if operation.outcome == "ok" else set()
            else:
                polled = {(offset, value) for pairs in micro.messages.values() for offset, value in pairs}
                seen |= polled
                if operation.final:
                    final.setdefault(operation.process, set()).update(polled)
    missing: dict[str, set[tuple[int | None, int]]] = {
        "unseen": {(None, value) for value in acked - {value for _, value in seen}},
        "vanished-read": {(reader, value) for reader, read in final.items() for _, value in seen - read},
    }
    verdict = evidence.verdict
    reported = {
        kind: {
            (anomaly.detail.get("reader"), anomaly.detail["value"])
            for anomaly in verdict.anomalies
            if anomaly.kind == kind and anomaly.expected
        }
        for kind in missing
    }
    counts = {kind: verdict.counts[kind].expected if kind in verdict.counts else 0 for kind in missing}
    ok = sum(counts.values()) > 0 and all(
        reported[kind] <= missing[kind] and counts[kind] == len(missing[kind]) for kind in missing
    )
    figures = ", ".join(f"{kind} {counts[kind]} of {len(missing[kind])}" for kind in missing)
    return ok, f"the checker names {figures}"


UNCLEAN_ELECTION: Final = Scenario(
    name="unclean-election",
    story="Unclean election is allowed, the only replica in sync dies, and one that lacks records is "
    "elected: they are lost, and the checker says exactly which.",
    topics=(
        TopicSpec(
            "all",
            partitions=1,
            replication=2,
            min_insync_replicas=1,
            settings={"unclean.leader.election.enable": "true"},
        ),
    ),
    settings=SHORT_SESSION,
    pace=Pace(operations_per_s=60.0),
    schedule=always(
        """
        at 1 for 3: kill follower(all-0)
        at 3: kill leader(all-0)
        at 4.1: await leader(all-0)
        at 5: start lagging(all-0)
        """
    ),
    expectations=(named("what is lost is named, all of it and nothing else", _named_exactly),),
)

SCENARIOS: Final = (LEADER_KILL, ROLLING_RESTART, SPLIT_BRAIN, COORDINATOR_KILL, UNCLEAN_ELECTION)
