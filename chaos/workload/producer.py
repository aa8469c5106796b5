"""A producer as a worker holds it: hand messages over, wait for what became of them, or throw it away.

Stock librdkafka with its own retries; only the times are shorter than its defaults, so that a fault
of seconds has consequences within seconds, and messages do not wait for company.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.history import Outcome, Send, partition_of
from chaos.workload.outcome import RETRY_BACKOFF_MS, outcome_of
from chaos.workload.record import record_of
from chaos.workload.topics import Writing

SERVE_S: Final = 0.1
GRACE_S: Final = 5.0
"""Beyond the delivery timeout: librdkafka looks for overdue messages about once a second."""
PURGE_PATIENCE_S: Final = 2.0

CLIENT_SETTINGS: Final[Mapping[str, Any]] = {
    "log_level": 0,
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "api.version.request.timeout.ms": 3_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    # A leader that went silent does not answer; clients learn of the new one from the others.
    "topic.metadata.refresh.interval.ms": 2_000,
    "topic.metadata.propagation.max.ms": 10_000,
    "metadata.max.age.ms": 10_000,
}


SILENT: Final = logging.getLogger("chaos.workload.librdkafka")
"""librdkafka prints fatal errors at any log level, unless a logger is set."""
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class SendingClient:
    def __init__(
        self,
        bootstrap: str,
        writing: Writing,
        timeout_s: float,
        now_ns: Callable[[], int],
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """`more`: settings of a transactional producer."""
        self._now_ns = now_ns
        self._patience_ns = int((timeout_s + GRACE_S) * 1e9)
        self.producer = Producer(
            {
                **CLIENT_SETTINGS,
                "bootstrap.servers": bootstrap,
                "acks": writing.acks,
                "enable.idempotence": writing.idempotent or writing.transactional,
                "linger.ms": 0,
                "message.timeout.ms": int(timeout_s * 1000),
                "retry.backoff.ms": RETRY_BACKOFF_MS,
                **(more or {}),
            },
            logger=SILENT,
        )
        self.is_dead = False
        """After a fatal error it refuses everything."""

    def send(self, sends: Sequence[tuple[str, int]]) -> Dispatch:
        """Hand them over, in this order."""
        dispatch = Dispatch(sends, self._now_ns)
        for index, (key, value) in enumerate(sends):
            topic, partition = partition_of(key)
            try:
                self.producer.produce(
                    topic, partition=partition, on_delivery=dispatch.report_to(index), **record_of(value)
                )
            except BufferError:
                dispatch.refuse(index, "the client's queue is full")
            except KafkaException as error:
                dispatch.refuse(index, error.args[0].str())
                self.is_dead |= error.args[0].fatal()
        return dispatch

    def wait(self, dispatch: Dispatch) -> None:
        """Until every report is there; the client itself sets the limit."""
        deadline = self._now_ns() + self._patience_ns
        while not dispatch.is_reported and self._now_ns() < deadline:
            self.serve(SERVE_S)
        self.is_dead |= dispatch.was_fatal

    def serve(self, seconds: float) -> None:
        """Give callbacks so much time."""
        try:
            self.producer.poll(seconds)
        except KafkaException as error:  # fatal errors are raised; delivery reports still come
            if not error.args[0].fatal():
                raise
            self.is_dead = True

    def purge(self) -> None:
        """Drop queued messages; a report comes for each of known outcome."""
        self.producer.purge(in_queue=True, in_flight=True, blocking=True)
        self.producer.flush(PURGE_PATIENCE_S)

    def end(self) -> None:
        """Close it; messages in flight have no outcome."""
        self.producer.purge()


class Dispatch:
    """Messages in flight, and what is known of each."""

    def __init__(self, sends: Sequence[tuple[str, int]], now_ns: Callable[[], int]) -> None:
        self._sends = sends
        self._now_ns = now_ns
        self._since_ns = now_ns()
        self._outcomes: list[Outcome | None] = [None] * len(sends)
        self._offsets: list[int | None] = [None] * len(sends)
        self._open = len(sends)
        self.error: str | None = None
        self.was_fatal = False

    @property
    def is_reported(self) -> bool:
        return self._open == 0

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome or "info" for outcome in self._outcomes]

    @property
    def ops(self) -> tuple[Send, ...]:
        return tuple(
            Send(key, value, offset, failed=outcome == "fail")
            for (key, value), offset, outcome in zip(self._sends, self._offsets, self._outcomes, strict=True)
        )

    def report_to(self, index: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            age_ms = (self._now_ns() - self._since_ns) / 1e6
            self._close(index, outcome_of(error, age_ms))
            if error is not None:
                self.error = self.error or error.str()
                self.was_fatal |= error.fatal()
                return
            offset = message.offset()
            # Negative: acks=0, or a batch so old that the broker knows only that it has it.
            self._offsets[index] = offset if offset is not None and offset >= 0 else None

        return report

    def refuse(self, index: int, error: str) -> None:
        """The client did not even take it."""
        self.error = self.error or error
        self._close(index, "fail")

    def _close(self, index: int, outcome: Outcome) -> None:
        if self._outcomes[index] is None:
            self._open -= 1
        self._outcomes[index] = outcome
