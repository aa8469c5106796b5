"""Metrics of requests and connections: RequestMetrics, SocketServer, RequestChannel, and quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from kraft.metrics.metric import Kind, MBean, Metric, Sample, Samples, Style
from kraft.metrics.sources import Sources
from kraft.monitoring.request_metrics import QUANTILES, Phase
from metadata_quorum.foundation.quota_types import QuotaType

_QUANTILES: Final = tuple(f"{q:.2f}" if q < 0.999 else f"{q}" for q in QUANTILES)
_NS: Final = 1e9


# ---- requests ----------------------------------------------------------------------------------------


def _requests(sources: Sources) -> Iterator[Sample]:
    for api in sources.node.requests:
        yield (api.name,), api.requests


def _errors(sources: Sources) -> Iterator[Sample]:
    yield from sources.node.requests.errors.items()


def _quantiles(phase: Phase) -> Callable[[Sources], Samples]:
    def read(sources: Sources) -> Iterator[Sample]:
        for api in sources.node.requests:
            for quantile, ms in zip(_QUANTILES, api.quantiles(phase), strict=True):
                yield (api.name, quantile), round(ms, 4)

    return read


def _phase(name: str, phase: Phase, help: str) -> Metric:
    return Metric(
        name=MBean("network", "RequestMetrics", name),
        kind=Kind.SUMMARY,
        help=f"{help}, in ms; of the newest requests, a hundred a second at most.",
        labels=("request", "quantile"),
        node=_quantiles(phase),
    )


_REQUESTS: Final = (
    Metric(
        name=MBean("network", "RequestMetrics", "RequestsPerSec"),
        kind=Kind.COUNTER,
        help="Requests by API.",
        labels=("request",),
        node=_requests,
    ),
    Metric(
        name=MBean("network", "RequestMetrics", "ErrorsPerSec"),
        kind=Kind.COUNTER,
        help="Refused requests, and refused partitions of produces and fetches.",
        labels=("request", "error"),
        node=_errors,
    ),
    _phase("RequestQueueTimeMs", Phase.REQUEST_QUEUE, "From a request's arrival until it is started"),
    _phase("LocalTimeMs", Phase.LOCAL, "In the request's handler"),
    _phase("RemoteTimeMs", Phase.REMOTE, "Waiting for followers, for data, for the controller"),
    _phase("ThrottleTimeMs", Phase.THROTTLE, "For which the client must pause"),
    _phase("ResponseQueueTimeMs", Phase.RESPONSE_QUEUE, "Waiting for replies before it"),
    _phase("ResponseSendTimeMs", Phase.RESPONSE_SEND, "Handing the reply to the socket"),
    _phase("TotalTimeMs", Phase.TOTAL, "From arrival to reply"),
)


# ---- the loop, in the place of Kafka's threads -------------------------------------------------------


def _idle(sources: Sources) -> float:
    """Since some seconds: 1 is an idle loop."""
    process = sources.process
    ns = sources.rates.per_second("idle", process.idle_ns)
    return min(ns / _NS, 1.0) if ns else process.idle_share


_IDLE: Final = "The share of time in which the event loop, which is all threads in one, is idle."

_LOOP: Final = (
    Metric(name=MBean("network", "SocketServer", "NetworkProcessorAvgIdlePercent"), help=_IDLE, node=_idle),
    Metric(
        name="kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        help=_IDLE,
        node=_idle,
        only=Style.STRIMZI,
    ),
    Metric(
        name="kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
        kind=Kind.COUNTER,
        help="Nanoseconds in which the event loop was idle.",
        node=lambda sources: sources.process.idle_ns,
        only=Style.REPORTER,
    ),
    Metric(
        name="kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
        help=_IDLE,
        node=_idle,
        only=Style.CONFLUENT,
    ),
    Metric(
        name=MBean("network", "RequestChannel", "RequestQueueSize"),
        help="Requests that have come but have not been started.",
        node=lambda sources: sum(each.waiting_requests for each in sources.connections),
    ),
    Metric(
        name=MBean("network", "RequestChannel", "ResponseQueueSize"),
        help="Replies that wait for an earlier one.",
        node=lambda sources: sum(each.waiting_replies for each in sources.connections),
    ),
)


# ---- connections -------------------------------------------------------------------------------------


def _listeners(sources: Sources) -> list[str]:
    config = sources.node.config
    return [each.name for each in (*config.broker_listeners, *config.controller_listeners)]


def _connection_count(sources: Sources) -> Iterator[Sample]:
    counts = Counter(each.listener for each in sources.connections)
    for listener in _listeners(sources):
        yield (listener,), counts[listener]


def _connection_rate(which: str) -> Callable[[Sources], Samples]:
    def read(sources: Sources) -> Iterator[Sample]:
        totals: Counter[str] = getattr(sources.connections, which)
        for listener in _listeners(sources):
            rate = sources.rates.per_second(f"{which} {listener}", totals[listener])
            yield (listener,), round(rate, 4)

    return read


def _connection_total(which: str) -> Callable[[Sources], Samples]:
    def read(sources: Sources) -> Iterator[Sample]:
        totals: Counter[str] = getattr(sources.connections, which)
        for listener in _listeners(sources):
            yield (listener,), totals[listener]

    return read


def _software(sources: Sources) -> Iterator[Sample]:
    counts = Counter(
        (
            each.listener,
            each.peer.state.client_software_name or "unknown",
            each.peer.state.client_software_version or "unknown",
        )
        for each in sources.connections
    )
    yield from counts.items()


def _acceptors(sources: Sources) -> Iterator[Sample]:
    for listener in _listeners(sources):
        yield (listener,), 0


def _connection_rows(prefix: str, only: Style | None) -> tuple[Metric, ...]:
    """Two of the styles spell the MBean in their own way."""
    per_listener = ("listener",)
    return (
        Metric(
            name=f"{prefix}_connection_count",
            help="Open connections.",
            labels=per_listener,
            node=_connection_count,
            only=only,
        ),
        Metric(
            name=f"{prefix}_connection_creation_rate",
            help="New connections a second.",
            labels=per_listener,
            node=_connection_rate("opened"),
            only=only,
        ),
        Metric(
            name=f"{prefix}_connection_close_rate",
            help="Closed connections a second.",
            labels=per_listener,
            node=_connection_rate("closed"),
            only=only,
        ),
        Metric(
            name=f"{prefix}_connection_creation_total",
            kind=Kind.COUNTER,
            help="New connections.",
            labels=per_listener,
            node=_connection_total("opened"),
            only=only,
        ),
        Metric(
            name=f"{prefix}_connections",
            help="Open connections, by the name of the client software.",
            labels=("listener", "client_software_name", "client_software_version"),
            node=_software,
            only=only,
        ),
    )


_CONNECTIONS: Final = (
    *_connection_rows("kafka_server_socket_server_metrics", Style.STRIMZI),
    *_connection_rows("kafka_server_socket_server_metrics", Style.REPORTER),
    *_connection_rows("kafka_server_socketservermetrics", Style.CONFLUENT),
    Metric(
        name=MBean("network", "Acceptor", "AcceptorBlockedPercent"),
        help="Always 0: connections are accepted by the loop, and wait for no thread.",
        labels=("listener",),
        node=_acceptors,
    ),
)


# ---- quotas ------------------------------------------------------------------------------------------


def _used(kind: QuotaType) -> Callable[[Sources], Samples]:
    def read(sources: Sources) -> Iterator[Sample]:
        quotas = sources.node.quotas
        if quotas is not None:
            for user, client_id, rate in quotas.measured(kind, sources.node.loop.time()):
                yield (user, client_id), round(rate, 3)

    return read


def _pause(kind: QuotaType) -> Callable[[Sources], Samples]:
    def read(sources: Sources) -> Iterator[Sample]:
        quotas = sources.node.quotas
        if quotas is not None:
            for user, client_id, pause_s in quotas.pauses(kind, sources.node.loop.time()):
                yield (user, client_id), round(pause_s * 1000, 1)

    return read


def _quota(what: str, figure: str, help: str, kind: QuotaType, *, pause: bool = False) -> Metric:
    return Metric(
        name=f"kafka_server_{what}_{figure}",
        help=f"{help} For clients that have a limit.",
        labels=("user", "client_id"),
        node=_pause(kind) if pause else _used(kind),
    )


_PAUSE: Final = "For how many ms a client that sends a request now must pause."

_QUOTAS: Final = (
    _quota("produce", "byte_rate", "Bytes a second produced.", QuotaType.PRODUCED_BYTES),
    _quota("fetch", "byte_rate", "Bytes a second fetched.", QuotaType.FETCHED_BYTES),
    _quota("request", "request_time", "Percent of the loop's time.", QuotaType.REQUEST_TIME),
    _quota("produce", "throttle_time", _PAUSE, QuotaType.PRODUCED_BYTES, pause=True),
    _quota("fetch", "throttle_time", _PAUSE, QuotaType.FETCHED_BYTES, pause=True),
    _quota("request", "throttle_time", _PAUSE, QuotaType.REQUEST_TIME, pause=True),
)

ROWS: Final = (*_REQUESTS, *_LOOP, *_CONNECTIONS, *_QUOTAS)
