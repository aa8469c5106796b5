"""`kraft doctor`: what an operator would check, in order, with what to do about it.

    survey.py, doctor_questions.py -> findings: pure, a function per check -> a table

The first that is wrong is often the cause of what follows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft.cli.bootstrap import no_broker
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, SurveyedBootstrap
from kraft.cli.errors import CliError
from kraft.cli.tables import prints_table, show
from metadata_quorum.foundation.errors import BrokerError

if TYPE_CHECKING:
    from kraft.cli.doctor_questions import GroupHealth, Hanging
    from kraft.cli.survey import Survey
    from kraft.wire.bridge import Message

NAMED: Final = 5
"""At most this many partitions are named."""
BEHIND_OFFSETS: Final = 1000
"""A voter whose metadata log lacks this many records is not merely a moment behind."""
UNBALANCED_SHARE: Final = 0.1
"""leader.imbalance.per.broker.percentage is 10."""
FREE_SHARE: Final = 0.1
OPEN_S: Final = 60.0
"""transaction.timeout.ms; whoever reads committed records waits for the end of a transaction."""
CAUGHT_UP_S: Final = 10.0
"""A voter that has not caught up for so long is dead, or cut off."""
WATCH_S: Final = 6.0
"""Consumers commit every 5 s (auto.commit.interval.ms)."""
VALID_DAYS: Final = 30
SKEW_S: Final = 3.0
SECONDS_PER_DAY: Final = 86_400
BYTES_PER_GB: Final = 1_000_000_000
MS_PER_S: Final = 1000
REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class State(StrEnum):
    """What a check has found."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    state: State
    found: str
    advice: str | None = None
    """What to do; None where nothing is wrong."""


@prints_table
def doctor(
    watch: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long groups that are behind are watched.")
    ] = WATCH_S,
    bootstrap: SurveyedBootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Check a cluster: brokers, quorum, leaders, replicas, disks. Exit code 1 where something is wrong."""
    from kraft.cli.survey import survey

    found = survey(bootstrap)
    if not found.metadata:
        raise no_broker(bootstrap, list(found.silent.values()))
    findings = list(_findings(bootstrap, found, watch))
    show(
        ("check", "state", "found", "what to do"),
        [(each.check, each.state, each.found, each.advice) for each in findings],
    )
    raise typer.Exit(1 if any(each.state is State.ERROR for each in findings) else 0)


def _findings(bootstrap: str, found: Survey, watch_s: float) -> Iterator[Finding]:
    """What cannot be asked is said, and the next is asked."""
    from kraft.cli import doctor_questions as ask

    assert found.witness is not None
    address, known = found.witness
    witness = (address.host, address.port)
    silent = {(each.host, each.port) for each in found.silent}
    up = {
        each.node_id: (each.host, each.port)
        for each in known.brokers
        if (each.host, each.port) not in silent  # of these each question would cost its timeout
    }
    health = cache(lambda: ask.groups(bootstrap, silent, set(found.without_leader())))
    checks: Sequence[tuple[str, Callable[[], Finding]]] = (
        ("brokers", lambda: brokers(found)),
        ("registrations", lambda: registrations(ask.fenced(witness))),
        ("metadata quorum", lambda: quorum(found)),
        ("leaders", lambda: leaders(found)),
        ("acks=all", lambda: acks_all(known, ask.min_isr(witness, _shrunk(known)))),
        ("replicas", lambda: replicas(known)),
        ("copies", lambda: copies(known)),
        ("balance", lambda: balance(known)),
        ("log dirs", lambda: log_dirs(ask.log_dirs(bootstrap, silent))),
        ("transactions", lambda: transactions(ask.open_for_long(bootstrap, silent, OPEN_S))),
        ("hanging", lambda: hanging(ask.hanging(bootstrap, known, silent, OPEN_S))),
        ("groups", lambda: groups(health())),
        ("progress", lambda: progress(ask.stuck(bootstrap, health(), watch_s))),
        ("certificates", lambda: certificates(ask.certificates(up), time.time())),
        ("clocks", lambda: clocks(ask.clocks(up))),
    )
    for name, check in checks:
        try:
            yield check()
        except (CliError, BrokerError) as error:
            advice = "mend what stands above; or ask as somebody who may know it"
            yield Finding(name, State.WARNING, f"not known: {error}", advice)


def brokers(found: Survey) -> Finding:
    """Do all answer that are named, or that are registered, and reach the active controller?"""
    if not found.silent and found.quorum is not None and found.cut_off:
        cut_off = ", ".join(map(found.name_of, found.cut_off))
        advice = "look at the network from there to the controllers: it may be cut in one direction only"
        return Finding("brokers", State.ERROR, f"not in touch with the active controller: {cut_off}", advice)
    if not found.silent:
        return Finding("brokers", State.OK, f"{len(found.brokers())} answer")
    silent = ", ".join(f"{found.name_of(address)} {why}" for address, why in found.silent.items())
    advice = "look at their processes and logs; on this machine: kraft node list, kraft node start"
    return Finding("brokers", State.ERROR, silent, advice)


def quorum(found: Survey) -> Finding:
    """Is there a leader, and does a majority follow it?"""
    if found.quorum is None and found.quorum_is_hidden:
        advice = "ask as somebody who has DESCRIBE on the cluster"
        return Finding("metadata quorum", State.WARNING, "we may not ask", advice)
    if found.quorum is None:
        states = "; ".join(f"controller {each.node_id} {each}" for each in found.controllers)
        majority = len(found.controllers) // 2 + 1
        advice = f"nothing can be created, elected or fenced: bring back {majority} of the controllers"
        return Finding("metadata quorum", State.ERROR, states or "no leader answers", advice)
    voters = found.quorum.current_voters
    end = max(voter.log_end_offset for voter in voters)
    now_ms = max(voter.last_caught_up_timestamp for voter in voters)  # the leader's own is its clock
    behind = [
        v.replica_id
        for v in voters
        if end - v.log_end_offset > BEHIND_OFFSETS
        or now_ms - v.last_caught_up_timestamp > CAUGHT_UP_S * MS_PER_S
    ]
    leader = f"node {found.quorum.leader_id} leads in epoch {found.quorum.leader_epoch}"
    if behind:
        late = ", ".join(map(str, behind))
        advice = "one more failure may stop the quorum: look at these nodes, and at what is between them"
        return Finding("metadata quorum", State.WARNING, f"{leader}; far behind: {late}", advice)
    return Finding("metadata quorum", State.OK, f"{leader}; {len(voters)} voters")


def leaders(found: Survey) -> Finding:
    """Can every partition be written and read?"""
    without = [str(each) for each in found.without_leader()]
    if not without:
        return Finding("leaders", State.OK, "every partition has one")
    advice = (
        "start the brokers with their replicas (kraft topic describe); only if these are lost for good: "
        "kraft elect-leaders --unclean, which may lose records"
    )
    return Finding("leaders", State.ERROR, f"none that answers: {_named(without)}", advice)


def replicas(known: Message) -> Finding:
    """Are all in sync?"""
    lagging, lacking = [], set()
    for topic in known.topics:
        for each in topic.partitions:
            missing = set(each.replica_nodes) - set(each.isr_nodes)
            if missing:
                lagging.append(f"{topic.name}-{each.partition_index}")
                lacking |= missing
    if not lagging:
        return Finding("replicas", State.OK, "all are in sync")
    nodes = ", ".join(map(str, sorted(lacking)))
    advice = f"look at broker {nodes}: is it down, its disk slow, its network cut?"
    return Finding("replicas", State.WARNING, f"out of sync: {_named(lagging)} (brokers {nodes})", advice)


def copies(known: Message) -> Finding:
    """Does the death of one broker leave every partition with a copy?"""
    if len(known.brokers) < 2:
        return Finding("copies", State.OK, "one broker: no partition can have a second copy")
    single = [
        str(topic.name)
        for topic in known.topics
        if any(len(each.replica_nodes) == 1 for each in topic.partitions)
    ]
    if not single:
        return Finding("copies", State.OK, "every partition has two or more")
    advice = "what is in them is lost with one disk: kraft reassign plan TOPIC --replication-factor 3"
    return Finding("copies", State.WARNING, f"one only: {_named(single)}", advice)


def balance(known: Message) -> Finding:
    """Do the replicas lead that should (the first of each list)?"""
    partitions = [each for topic in known.topics for each in topic.partitions]
    others = [
        f"{topic.name}-{each.partition_index}"
        for topic in known.topics
        for each in topic.partitions
        if each.leader_id >= 0 and each.leader_id != each.replica_nodes[0]
    ]
    if len(others) <= UNBALANCED_SHARE * len(partitions):
        return Finding("balance", State.OK, f"{len(partitions) - len(others)} of {len(partitions)} preferred")
    advice = "kraft elect-leaders, once the preferred replicas are in sync (it also happens by itself)"
    found = f"{len(others)} of {len(partitions)} partitions are not led by their preferred replica"
    return Finding("balance", State.WARNING, found, advice)


def log_dirs(answers: Mapping[int, Sequence[Message]]) -> Finding:
    """By broker: is every directory online, is there room?"""
    failed, full, least = [], [], None
    for broker_id, results in answers.items():
        for each in results:
            name = f"{each.log_dir} of broker {broker_id}"
            if each.error_code:
                failed.append(name)
            elif each.total_bytes > 0:
                least = min(each.usable_bytes, least if least is not None else each.usable_bytes)
                if each.usable_bytes < FREE_SHARE * each.total_bytes:
                    full.append(f"{name}: {each.usable_bytes / BYTES_PER_GB:.1f} GB left")
    if failed:
        advice = "its replicas are offline until the disk is repaired or replaced and the broker restarted"
        return Finding("log dirs", State.ERROR, f"failed: {_named(failed)}", advice)
    if full:
        advice = "lower retention.ms or retention.bytes, move partitions (kraft reassign), or add room"
        return Finding("log dirs", State.WARNING, f"nearly full: {_named(full)}", advice)
    room = "" if least is None else f", {least / BYTES_PER_GB:.1f} GB left where it is least"
    return Finding("log dirs", State.OK, f"all online{room}")


def registrations(fenced: Sequence[int]) -> Finding:
    """Are all brokers there that once registered?"""
    if not fenced:
        return Finding("registrations", State.OK, "no broker is missing")
    advice = (
        "start it again; one that never comes back: move its replicas (kraft reassign plan TOPIC --to ...)"
    )
    return Finding("registrations", State.ERROR, f"fenced: broker {', '.join(map(str, fenced))}", advice)


def acks_all(known: Message, min_isr: Mapping[str, int]) -> Finding:
    """Does every partition take what is written with acks=all?"""
    refusing = [
        f"{topic.name}-{each.partition_index}"
        for topic in known.topics
        for each in topic.partitions
        if len(each.isr_nodes) < min_isr.get(topic.name, 0)
    ]
    if not refusing:
        return Finding("acks=all", State.OK, "is taken everywhere")
    advice = (
        "bring back the brokers of the replicas that are out of sync; min.insync.replicas keeps records safe"
    )
    return Finding("acks=all", State.ERROR, f"refused, too few in sync: {_named(refusing)}", advice)


def _shrunk(known: Message) -> list[str]:
    """Topics with replicas out of sync: no other can have too few."""
    return [
        str(topic.name)
        for topic in known.topics
        if any(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions)
    ]


def transactions(open_for_long: Sequence[str]) -> Finding:
    """Is one open for longer than it should?"""
    if not open_for_long:
        return Finding("transactions", State.OK, f"none is open for more than {OPEN_S:g} s")
    advice = f"consumers wait for its end: kraft txn describe {open_for_long[0]}, then kraft txn abort"
    found = f"open for more than {OPEN_S:g} s: {_named(open_for_long)}"
    return Finding("transactions", State.WARNING, found, advice)


def groups(found: Sequence[GroupHealth]) -> Finding:
    """Does somebody read what groups have not read?"""
    moving = [f"{each.group_id} ({each.state})" for each in found if each.state in REBALANCING]
    left = [f"{each.group_id} ({each.lag})" for each in found if each.members == 0 and each.lag > 0]
    if left:
        advice = (
            "start their consumers, or kraft group delete: offsets of a group keep nothing but themselves"
        )
        return Finding("groups", State.WARNING, f"behind, with no member: {_named(left)}", advice)
    if moving:
        advice = (
            "look again; one that stays so has a member that does not answer: kraft group describe --members"
        )
        return Finding("groups", State.WARNING, f"not reading: {_named(moving)}", advice)
    lag = max(found, key=lambda each: each.lag, default=None)
    most = "" if lag is None else f", {lag.group_id} is {lag.lag} behind" if lag.lag else ", none is behind"
    return Finding("groups", State.OK, f"{len(found)}{most}")


def hanging(found: Sequence[Hanging]) -> Finding:
    """Does one hold back readers for ever, because no coordinator will end it?"""
    if not found:
        return Finding("hanging", State.OK, "no transaction is open that no coordinator knows")
    (topic, partition), _, offset = found[0]
    advice = (
        "readers of committed records wait for ever: "
        f"kraft txn abort --topic {topic} --partition {partition} --start-offset {offset}"
    )
    return Finding("hanging", State.ERROR, f"no coordinator knows: {_named(list(map(str, found)))}", advice)


def progress(stuck: Sequence[str]) -> Finding:
    """Do groups that are behind commit anything?"""
    if not stuck:
        return Finding("progress", State.OK, "no group that is behind stands still")
    advice = "look at their consumers: a record that they fail on? One that commits seldom may be well"
    return Finding("progress", State.WARNING, f"behind, and committed nothing: {_named(stuck)}", advice)


def certificates(valid_until: Mapping[int, float], now: float) -> Finding:
    """Does a broker's end soon?"""
    if not valid_until:
        return Finding("certificates", State.OK, "we do not speak TLS")
    days = {broker: int((until - now) // SECONDS_PER_DAY) for broker, until in valid_until.items()}
    ending = [f"broker {broker} in {left} days" for broker, left in days.items() if left < VALID_DAYS]
    if ending:
        key = "listener.name.NAME.ssl.keystore.location"
        advice = f"renew the file; kraft config set broker ID {key}=FILE reads it again"
        return Finding("certificates", State.WARNING, f"end soon: {_named(ending)}", advice)
    return Finding("certificates", State.OK, f"the first ends in {min(days.values())} days")


def clocks(ahead_s: Mapping[int, float]) -> Finding:
    """Do they agree with ours? Timestamps, retention and certificates go by them."""
    if not ahead_s:
        return Finding("clocks", State.OK, "not known: no broker's kraft.http.port is within our reach")
    wrong = [f"broker {broker} by {ahead:+.0f} s" for broker, ahead in ahead_s.items() if abs(ahead) > SKEW_S]
    if wrong:
        advice = "start NTP (chrony, systemd-timesyncd) there, or here"
        return Finding("clocks", State.WARNING, f"differ from ours: {_named(wrong)}", advice)
    return Finding("clocks", State.OK, f"{len(ahead_s)} agree with ours")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def add_to(cli: typer.Typer) -> None:
    """Hang the command into the tree."""
    cli.command()(doctor)
