"""Workloads beside the data path: groups, commits, transactions, many topics, many idle partitions."""

from __future__ import annotations

import time

from benchmarks.client.groups import CommitJob, RebalanceJob
from benchmarks.client.transactions import TransactJob
from benchmarks.clients import run_client
from benchmarks.cluster import NODES, cpu_seconds, rss_bytes
from benchmarks.percentiles import QUANTILES
from benchmarks.session import MB, Session

COMMIT_PARTITIONS = 20
COMMIT_RATE = 1000
PRODUCERS = (1, 8)
TRANSACTION_MESSAGES = 10
TRANSACTION_PARTITIONS = 3
VALUE_BYTES = 100
REBALANCES = 3
REBALANCE_LIMIT_S = 120.0
TOPICS_A_REQUEST = 100
PARTITIONS_A_TOPIC = 100
REST_S = 10.0


def group(session: Session) -> None:
    """All members of a group rejoin at once; from the first request to the last one's assignment."""
    topic = session.new_topic(1)
    job = RebalanceJob(session.cluster.bootstrap, topic, topic, session.scale.group_members, REBALANCES)
    for seconds in run_client("rebalance", job, REBALANCE_LIMIT_S)["seconds"]:
        session.record("group.rebalance", seconds)
    session.note_memory()
    session.admin.delete_topic(topic)


def commits(session: Session) -> None:
    """Commits at a fixed rate to one coordinator."""
    topic = session.new_topic(COMMIT_PARTITIONS)
    scale = session.scale
    job = CommitJob(session.cluster.bootstrap, topic, topic, COMMIT_PARTITIONS, COMMIT_RATE, scale.latency_s)
    result = run_client("commit", job, scale.latency_s)
    if result["failed"] or result["unfinished"]:
        session.note(f"commits: {result['failed']} failed, {result['unfinished']} unanswered at the end")
    for quantile in QUANTILES:
        session.record(f"commits.{quantile}", result["latency_s"][quantile] * 1e3)
    session.admin.delete_topic(topic)


def transactions(session: Session) -> None:
    """Small transactions back to back, by one producer and by several."""
    scale = session.scale
    for producers in PRODUCERS:
        topic = session.new_topic(TRANSACTION_PARTITIONS)
        job = TransactJob(
            session.cluster.bootstrap,
            topic,
            TRANSACTION_PARTITIONS,
            producers,
            TRANSACTION_MESSAGES,
            VALUE_BYTES,
            scale.warm_up_s / 4,
            scale.throughput_s,
        )
        result = run_client("transact", job, scale.warm_up_s / 4 + scale.throughput_s)
        session.record(f"transactions-{producers}.rate", result["rate"])
        for quantile in QUANTILES:
            session.record(f"transactions-{producers}.{quantile}", result["latency_s"][quantile] * 1e3)
        session.note_memory()
        session.admin.delete_topic(topic)


def topics(session: Session) -> None:
    """Many topics of one partition, in requests of a hundred, until each has a leader."""
    names = [f"one-of-many-{number}" for number in range(session.scale.topics)]
    started = time.monotonic()
    for first in range(0, len(names), TOPICS_A_REQUEST):
        session.admin.create_topics(names[first : first + TOPICS_A_REQUEST])
    session.record("topics", time.monotonic() - started)
    session.admin.delete_topics(names)


def idle_partitions(session: Session) -> None:
    """Many idle partitions: what they cost a node in CPU and memory. They stay until the
    cluster ends, so this comes last."""
    for number in range(session.scale.idle_partitions // PARTITIONS_A_TOPIC):
        session.admin.create_topic(f"idle-{number}", PARTITIONS_A_TOPIC)
    time.sleep(min(REST_S, session.scale.idle_s * 2))
    seconds = session.scale.idle_s * 2
    before, started = cpu_seconds(session.cluster), time.monotonic()
    time.sleep(seconds)
    cores = (cpu_seconds(session.cluster) - before) / (time.monotonic() - started)
    session.record("idle-partitions.cpu", 100 * cores / NODES)
    session.record("idle-partitions.rss", rss_bytes(session.cluster) / MB / NODES)
