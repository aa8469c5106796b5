"""Metrics of the process, and our own: what no dashboard of Kafka's asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Final

from kraft.metrics.metric import Kind, Metric, Number, OverManyTurns, Sample, Samples
from kraft.metrics.sources import Broker, Sources
from kraft.monitoring.client_telemetry import TelemetryClient


def _known(read: Callable[[Sources], Number | None]) -> Callable[[Sources], Samples]:
    """Nothing where the operating system does not tell."""

    def known(sources: Sources) -> Samples:
        value = read(sources)
        return () if value is None else value

    return known


_PROCESS: Final = (
    Metric(
        name="process_cpu_seconds_total",
        kind=Kind.COUNTER,
        help="CPU time of the process.",
        node=lambda sources: round(sources.process.cpu_s, 3),
    ),
    Metric(
        name="process_start_time_seconds",
        help="When the node started.",
        node=lambda sources: sources.process.start_time_s,
    ),
    Metric(
        name="process_open_fds",
        help="Open files and sockets.",
        node=_known(lambda sources: sources.process.open_fds),
    ),
    Metric(
        name="process_resident_memory_bytes",
        help="Resident memory.",
        node=_known(lambda sources: sources.process.resident_bytes),
    ),
    Metric(
        name="kafka_server_kafkaserver_linux_disk_read_bytes",
        help="Bytes that the process had read from a device.",
        node=_known(lambda sources: sources.process.disk_bytes("read")),
    ),
    Metric(
        name="kafka_server_kafkaserver_linux_disk_write_bytes",
        help="Bytes that the process had written to a device.",
        node=_known(lambda sources: sources.process.disk_bytes("write")),
    ),
)


def _info(sources: Sources) -> Iterator[Sample]:
    yield (version("kraft"), sources.node.cluster_id, str(sources.node.node_id)), 1


def _faults(sources: Sources) -> Iterator[Sample]:
    for place, count in sources.node.faults.items():
        yield (place,), count


def _certificate_ends(sources: Sources) -> Iterator[Sample]:
    for listener, end in dict(sources.node.certificate_ends).items():
        yield (listener,), end


def _budget(sources: Sources) -> Iterator[Sample]:
    for listener, budget in sources.memory.queued.items():
        yield (listener,), budget.used_bytes


def _client_metrics(sources: Sources) -> Samples:
    return OverManyTurns(_series(list(sources.node.client_telemetry.clients(sources.node.loop.time()))))


def _series(clients: Iterable[TelemetryClient]) -> Iterator[Sample]:
    """Clients push meanwhile."""
    for client in clients:
        for (name, attributes), value in list(client.figures.items()):
            labels = ",".join(f"{key}={text}" for key, text in attributes)
            yield (client.client_id, str(client.instance_id), name, labels), value


_NODE: Final = (
    Metric(
        name="kraft_client_metric",
        kind=Kind.UNKNOWN,
        help="What clients have pushed to this node of their own metrics (KIP-714).",
        labels=("client_id", "client_instance_id", "metric", "attributes"),
        node=_client_metrics,
    ),
    Metric(
        name="kraft_info",
        help="Version, cluster and node.",
        labels=("version", "cluster_id", "node_id"),
        node=_info,
    ),
    Metric(
        name="kraft_loop_stalls_total",
        kind=Kind.COUNTER,
        help="Turns of the event loop that took longer than kraft.loop.stall.ms; the log names the culprit.",
        node=lambda sources: sources.node.loop_health.stalls,
    ),
    Metric(
        name="kraft_loop_longest_stall_seconds",
        help="CPU time of the longest turn of the event loop.",
        node=lambda sources: sources.node.loop_health.longest_ms / 1000,
    ),
    Metric(
        name="kraft_faults_total",
        kind=Kind.COUNTER,
        help="Errors that ended one piece of work, by the place in the code. Each is a bug.",
        labels=("place",),
        node=_faults,
    ),
    Metric(
        name="kraft_certificate_end_seconds",
        help="When the certificate that this node shows for a listener ends (of its chain, the first), in "
        "seconds since 1970.",
        labels=("listener",),
        node=_certificate_ends,
    ),
    Metric(
        name="kraft_request_bytes",
        help="Bytes held for unanswered requests.",
        labels=("listener",),
        node=_budget,
    ),
    Metric(
        name="kraft_unread_reply_bytes",
        help="Bytes of replies that clients have not read.",
        node=lambda sources: sources.memory.unread.held_bytes,
    ),
    Metric(
        name="kraft_metadata_offset",
        help="Offset of the metadata that this node acts on.",
        node=lambda sources: sources.node.image.offset,
    ),
    Metric(
        name="kraft_metadata_lag_records",
        help="Committed metadata records that this node knows but has not acted on.",
        node=lambda sources: max(sources.node.committed_metadata.image.offset - sources.node.image.offset, 0),
    ),
)


def _uncleanable(broker: Broker) -> int:
    return len(broker.context.replica_manager.cleaner.uncleanable)


_BROKER: Final = (
    Metric(
        name="kraft_log_flushes_total",
        kind=Kind.COUNTER,
        help="Flushes of partitions' logs.",
        broker=lambda broker: broker.context.replica_manager.executor.flushes,
    ),
    Metric(
        name="kraft_log_flush_seconds_total",
        kind=Kind.COUNTER,
        help="Time of these flushes, from when they were due; divided by their number, what an fsync takes.",
        broker=lambda broker: broker.context.replica_manager.executor.flush_s,
    ),
    Metric(
        name="kraft_cold_reads_total",
        kind=Kind.COUNTER,
        help="Partitions of fetches read in another thread: not in the page cache, or too many for the loop.",
        broker=lambda broker: broker.context.fetch_service.cold_reads,
    ),
    Metric(
        name="kraft_uncleanable_partitions",
        help="Partitions whose log cannot be compacted; the log says why.",
        broker=_uncleanable,
    ),
)

ROWS: Final = (*_PROCESS, *_NODE, *_BROKER)
