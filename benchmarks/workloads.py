"""The workloads: each drives a running cluster and records samples under the names of metrics.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks import coordination
from benchmarks.client.compute import ComputeJob
from benchmarks.client.latency import ReceiveJob, SendJob
from benchmarks.client.probe import ProbeJob
from benchmarks.client.take_records import build, take_records
from benchmarks.client.throughput import ConsumeJob, ProduceJob
from benchmarks.clients import client, run_client
from benchmarks.cluster import SystemSkipped, cpu_seconds, rss_bytes
from benchmarks.gaps import longest_gap
from benchmarks.page_cache import evict
from benchmarks.percentiles import QUANTILES
from benchmarks.quiet import CpuUse, disturbed
from benchmarks.session import GB, MB, Session

PARTITIONS = 20
MANY_PARTITIONS = 600
LATENCY_VALUE_BYTES = 100
SETTLE_TIMEOUT_S = 60.0
PROBE_RATE = 300
PROBE_TIMEOUT_S = 60.0
BEFORE_KILL_S = 0.5
BACKLOG_RATE = 1000
CONSUMER_THREADS = 2
"""Of a consumer, that have much to do: its own, and librdkafka's that reads from the brokers."""
BACKLOG_VALUE_BYTES = 1024
BACKLOG_LIMIT_S = 30.0
TAIL_S = 1.0  # for the last messages to reach the consumer


class WorkloadFailed(RuntimeError):
    """A workload's own checks failed, so its figures would mean nothing."""


def warm_up(session: Session) -> None:
    """Every path that is measured, for a while, so that the JVM has compiled it."""
    seconds = session.scale.warm_up_s / 4
    topic = session.new_topic(PARTITIONS)
    for acks, value_bytes in (("all", 1024), ("1", 1024), ("all", 100)):
        _produce(session, topic, acks, value_bytes, seconds)
    messages = _wait_until_replicated(session, topic)
    _consume(session, topic, messages)
    job = SendJob(session.cluster.bootstrap, topic, PARTITIONS, [], seconds, seconds, LATENCY_VALUE_BYTES)
    run_client("send", job, seconds)
    session.admin.delete_topic(topic)


def memory(session: Session) -> None:
    """Resident memory at rest; the loaded figure is the peak over all workloads."""
    topic = session.new_topic(PARTITIONS)
    time.sleep(session.scale.idle_s)
    session.record("memory.idle", rss_bytes(session.cluster) / MB)
    session.admin.delete_topic(topic)


def produce_1k(session: Session) -> None:
    for acks in ("all", "1"):
        _measure_produce(session, acks, 1024, f"produce-1k.{acks}")


def produce_100(session: Session) -> None:
    for acks in ("all", "1"):
        _measure_produce(session, acks, 100, f"produce-100.{acks}")


def consume_1k(session: Session) -> None:
    """Four times as much as of small records: of a quarter of a second a good part would be the beginning."""
    _measure_consume(session, 1024, "consume-1k", 4 * session.scale.backlog_bytes)


def consume_100(session: Session) -> None:
    _measure_consume(session, 100, "consume-100", session.scale.backlog_bytes)


def cold_backlog(session: Session) -> None:
    """Acks of a steady producer: alone, while a consumer reads a backlog that is in the page cache, while it
    reads one that is not, and while a process reads nothing and computes for as long as the consumer did."""
    hot = session.new_topic(PARTITIONS)
    backlog, messages = _backlog(session, BACKLOG_VALUE_BYTES, session.scale.backlog_bytes)
    scale = session.scale
    job = SendJob(
        session.cluster.bootstrap, hot, PARTITIONS, [BACKLOG_RATE], scale.latency_s, scale.warm_up_s / 4,
        LATENCY_VALUE_BYTES,
    )  # fmt: skip
    computed_s = 0.0
    for way in ("alone", "warm", "cold", "computing"):
        if way == "cold":
            evict(session.cluster.directory, f"**/{backlog}-*/*.log")
        with client("send", job) as sender:
            if way != "alone":
                time.sleep(job.warm_up_s + job.seconds / 6)
            if way == "computing":
                run_client("compute", ComputeJob(computed_s, CONSUMER_THREADS), computed_s)
            elif way != "alone":
                read = _consume(session, backlog, messages)
                computed_s = read["client_cpu_s"]
                session.record(f"cold-backlog.{way}.rate", read["bytes"] / MB / read["seconds"])
            (phase,) = sender.result(job.warm_up_s + job.seconds + SETTLE_TIMEOUT_S)["phases"]
        for quantile in QUANTILES:
            session.record(f"cold-backlog.{way}.{quantile}", phase["latency_s"][quantile] * 1e3)
    session.note_memory()
    session.admin.delete_topics([backlog, hot])


def latency_20(session: Session) -> None:
    _measure_latency(session, PARTITIONS)


def latency_600(session: Session) -> None:
    _measure_latency(session, MANY_PARTITIONS)


def failover_leader(session: Session) -> None:
    for _ in range(session.scale.kills):
        _measure_failover(session, kill_controller=False)


def failover_controller(session: Session) -> None:
    for _ in range(session.scale.kills):
        _measure_failover(session, kill_controller=True)


# By the name that --only takes, in the order of running.
WORKLOADS: dict[str, Callable[[Session], None]] = {
    "produce-1k": produce_1k,
    "produce-100": produce_100,
    "consume-1k": consume_1k,
    "consume-100": consume_100,
    "cold-backlog": cold_backlog,
    "latency-20": latency_20,
    "latency-600": latency_600,
    "group": coordination.group,
    "commits": coordination.commits,
    "transactions": coordination.transactions,
    "topics": coordination.topics,
    "failover-leader": failover_leader,
    "failover-controller": failover_controller,
    "idle-partitions": coordination.idle_partitions,
}


def _produce(
    session: Session, topic: str, acks: str, value_bytes: int, seconds: float, max_bytes: int | None = None
) -> dict[str, Any]:
    job = ProduceJob(
        bootstrap=session.cluster.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        acks=acks,
        value_bytes=value_bytes,
        seconds=seconds,
        max_bytes=max_bytes or session.scale.throughput_max_bytes,
    )
    result = run_client("produce", job, seconds)
    if result["failed"]:
        raise WorkloadFailed(f"{result['failed']} records were not acknowledged: {result['first_failure']}")
    return result


def _consume(session: Session, topic: str, messages: int) -> dict[str, Any]:
    job = ConsumeJob(session.cluster.bootstrap, topic, PARTITIONS, messages, SETTLE_TIMEOUT_S)
    result = run_client("consume", job, SETTLE_TIMEOUT_S)
    if result["failed"]:
        raise WorkloadFailed(f"{result['failed']} of {messages} records did not come back")
    return result


def _wait_until_replicated(session: Session, topic: str) -> int:
    """Wait until the high watermarks do not change and every ISR is full; return the records below them."""
    consumer = Consumer({"bootstrap.servers": session.cluster.bootstrap, "group.id": "bench"})
    try:
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        before = -1
        while time.monotonic() < deadline:
            marks = [consumer.get_watermark_offsets(TopicPartition(topic, p), 10) for p in range(PARTITIONS)]
            records = sum(high for _, high in marks)
            if records == before:
                return records
            before = records
            time.sleep(0.2)
    finally:
        consumer.close()
    raise WorkloadFailed("the followers did not catch up")


def _measure_produce(session: Session, acks: str, value_bytes: int, metric: str) -> None:
    topic = session.new_topic(PARTITIONS)
    cpu_before = cpu_seconds(session.cluster)
    result = _produce(session, topic, acks, value_bytes, session.scale.throughput_s)
    # With acks=1 replication is still in progress; its cost belongs to these bytes.
    _wait_until_replicated(session, topic)
    broker_cpu_s = cpu_seconds(session.cluster) - cpu_before
    session.note_memory()
    session.record(f"{metric}.rate", result["bytes"] / MB / result["seconds"])
    session.record(f"{metric}.broker-cpu", broker_cpu_s / (result["bytes"] / GB))
    session.record(f"{metric}.client-cpu", result["client_cpu_s"] / (result["bytes"] / GB))
    session.admin.delete_topic(topic)


def _backlog(session: Session, value_bytes: int, size: int) -> tuple[str, int]:
    """A topic of as many bytes for either system, and how many records it has."""
    topic = session.new_topic(PARTITIONS)
    _produce(session, topic, "all", value_bytes, BACKLOG_LIMIT_S, size)
    return topic, _wait_until_replicated(session, topic)


def _measure_consume(session: Session, value_bytes: int, metric: str, size: int) -> None:
    topic, messages = _backlog(session, value_bytes, size)
    cpu_before = cpu_seconds(session.cluster)
    result = _consume(session, topic, messages)
    broker_cpu_s = cpu_seconds(session.cluster) - cpu_before
    session.note_memory()
    session.record(f"{metric}.rate", result["bytes"] / MB / result["seconds"])
    session.record(f"{metric}.ceiling", result["bytes"] / MB / result["thread_ran_s"])
    session.record(f"{metric}.waits", 100 * result["thread_waited_s"] / result["seconds"])
    session.record(f"{metric}.client-cpu", result["client_cpu_s"] / (result["bytes"] / GB))
    session.record(f"{metric}.broker-cpu", broker_cpu_s / (result["bytes"] / GB))
    session.record(f"{metric}.cores", (result["client_cpu_s"] + broker_cpu_s) / result["seconds"])
    _measure_consume_in_c(session, topic, messages, metric)
    session.admin.delete_topic(topic)


def _measure_consume_in_c(session: Session, topic: str, messages: int, metric: str) -> None:
    """The same records once more, by a client that makes no Python object of each."""
    try:
        program = build()
    except SystemSkipped as reason:
        session.note(f"no client in C: {reason}")
        return
    job = ConsumeJob(session.cluster.bootstrap, topic, PARTITIONS, messages, SETTLE_TIMEOUT_S)
    cpu_before = cpu_seconds(session.cluster)
    taken = take_records(program, job)
    broker_cpu_s = cpu_seconds(session.cluster) - cpu_before
    if taken.messages < messages:
        raise WorkloadFailed(f"{messages - taken.messages} of {messages} records did not come back to C")
    session.record(f"{metric}.c.rate", taken.bytes / MB / taken.seconds)
    session.record(f"{metric}.c.client-cpu", taken.cpu_s / (taken.bytes / GB))
    session.record(f"{metric}.c.broker-cpu", broker_cpu_s / (taken.bytes / GB))
    session.record(f"{metric}.c.cores", (taken.cpu_s + broker_cpu_s) / taken.seconds)


def _measure_latency(session: Session, partitions: int) -> None:
    topic = session.new_topic(partitions)
    scale, bootstrap = session.scale, session.cluster.bootstrap
    rates = list(scale.latency_rates)
    warm_up_s = scale.warm_up_s / 4
    job = SendJob(bootstrap, topic, partitions, rates, scale.latency_s, warm_up_s, LATENCY_VALUE_BYTES)
    send_s = warm_up_s + (scale.latency_s + 10.0) * len(rates)
    before = CpuUse.of(session.cluster)
    with client("receive", ReceiveJob(bootstrap, topic, partitions, send_s + 30.0)) as receiver:
        sent = run_client("send", job, send_s)
        time.sleep(TAIL_S)
        receiver.tell("stop")
        received = receiver.result(60.0)
    if (said := disturbed(CpuUse.of(session.cluster).others_since(before))) is not None:
        session.note(said)
    session.note_memory()
    for number, phase in enumerate(sent["phases"], start=1):
        rate = phase["rate"]
        if phase["failed"] or phase["unfinished"]:
            session.note(
                f"{rate}/s: {phase['failed']} failed, {phase['unfinished']} still unanswered at the end"
            )
        arrived = received["latency_s"].get(str(number), {})
        for quantile in QUANTILES:
            name = f"latency-{partitions}.{rate}"
            session.record(f"{name}.ack.{quantile}", phase["latency_s"][quantile] * 1e3)
            if quantile in arrived:
                session.record(f"{name}.end-to-end.{quantile}", arrived[quantile] * 1e3)
    session.admin.delete_topic(topic)


def _measure_failover(session: Session, *, kill_controller: bool) -> None:
    """Kill a node under steady acks=all writes; the longest silence of a partition that it led."""
    topic = session.new_topic(3)
    leaders = session.admin.wait_for_full_isr(topic)
    controller = session.admin.active_controller()
    victims = [leader for leader in leaders.values() if (leader == controller) is kill_controller]
    if not victims:
        raise WorkloadFailed(f"leaders {leaders} and controller {controller} leave no node to kill")
    victim = victims[0]
    job = ProbeJob(session.cluster.bootstrap, topic, 3, PROBE_RATE, PROBE_TIMEOUT_S)
    with client("probe", job) as probe:
        probe.wait_for("steady")
        time.sleep(BEFORE_KILL_S)
        killed_at = session.cluster.kill(victim)
        probe.tell(str(killed_at))
        result = probe.result(PROBE_TIMEOUT_S + 30.0)
    session.cluster.restart(victim)
    session.admin.wait_for_full_isr(topic)
    if result["failed"] or not result["recovered"]:
        raise WorkloadFailed(f"writes did not recover: {result['failed']} failed, {result['first_failure']}")
    led = [str(partition) for partition, leader in leaders.items() if leader == victim]
    gap_s = max(longest_gap(result["acked_at"][partition], killed_at) for partition in led)
    session.record("failover-controller" if kill_controller else "failover-leader", gap_s)
    session.admin.delete_topic(topic)
