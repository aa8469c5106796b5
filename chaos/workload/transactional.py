"""A client's transactional producer, one transaction at a time.

    init -> begin -> send ... -> commit | abort -> begin ...

A commit is requested only when everything sent is acknowledged. A transaction whose commit was never
requested surely does not commit, whatever else happened: it is aborted by its producer, by the next one of
its id, or by its timeout. The outcome of one whose commit got no response is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from chaos.history import Outcome, Send, partition_of
from chaos.workload.producer import Dispatch, SendingClient

ATTEMPT_S: Final = 5.0
PATIENCE_S: Final = 10.0
"""With one call, all its attempts together."""


class Consumed:
    """Input that is committed with a transaction's output: how far, and by which member of the group."""

    def __init__(self, upto: Mapping[str, int], group_metadata: Any) -> None:
        self.upto = upto
        self.group_metadata = group_metadata

    @property
    def offsets(self) -> list[TopicPartition]:
        offsets = []
        for key, offset in self.upto.items():
            topic, partition = partition_of(key)
            offsets.append(TopicPartition(topic, partition, offset))
        return offsets


class TransactionalClient:
    def __init__(self, sender: SendingClient, now_ns: Callable[[], int]) -> None:
        """`sender`: with a transactional id."""
        self._sender = sender
        self._now_ns = now_ns
        self._dispatches: list[Dispatch] = []
        self.commit_asked: int | None = None
        """When, of the current transaction."""
        self.error: str | None = None
        """The first error of the current transaction."""
        self.is_dead = False
        """Fenced, or in the dark about its last commit: good for nothing more."""

    def init(self) -> bool:
        """Take the transactional id over: its former producer is fenced, and its open transaction aborted."""
        return self._insist(lambda: self._sender.producer.init_transactions(ATTEMPT_S)) is None

    def begin(self) -> bool:
        self._dispatches, self.commit_asked, self.error = [], None, None
        return self._insist(self._sender.producer.begin_transaction) is None

    def send(self, sends: Sequence[tuple[str, int]]) -> None:
        """Hand them over, and wait for their acks."""
        if sends:
            dispatch = self._sender.send(sends)
            self._sender.wait(dispatch)
            self.error = self.error or dispatch.error
            self._dispatches.append(dispatch)

    @property
    def ops(self) -> tuple[Send, ...]:
        """Of the current transaction."""
        return tuple(send for dispatch in self._dispatches for send in dispatch.ops)

    def commit(self, consumed: Consumed | None = None) -> Outcome:
        if any(outcome != "ok" for dispatch in self._dispatches for outcome in dispatch.outcomes):
            return self.abort()
        if consumed is not None and not self._send_offsets(consumed):
            return "fail" if self.is_dead else self.abort()
        producer = self._sender.producer
        self.commit_asked = self._now_ns()
        problem = self._insist(lambda: producer.commit_transaction(ATTEMPT_S))
        if problem is None:
            return "ok"
        if (
            problem.txn_requires_abort()
            and self._insist(lambda: producer.abort_transaction(ATTEMPT_S)) is None
        ):
            return "fail"  # what is aborted was not committed
        self.is_dead = True
        return "info"

    def abort(self) -> Outcome:
        """What is not committed now never will be, whether this succeeds or not."""
        if self._insist(lambda: self._sender.producer.abort_transaction(ATTEMPT_S)) is not None:
            self.is_dead = True
        return "fail"

    def end(self) -> None:
        """Close it, whatever is open."""
        self._sender.end()

    def _send_offsets(self, consumed: Consumed) -> bool:
        """On a thread of its own: librdkafka 2.16 heeds no timeout here, and waits for ever where the group's
        coordinator left the cluster meanwhile (its issues 5456 and 5511)."""
        offsets, member, sent = consumed.offsets, consumed.group_metadata, threading.Event()

        def send() -> None:
            producer = self._sender.producer
            if self._insist(lambda: producer.send_offsets_to_transaction(offsets, member, ATTEMPT_S)) is None:
                sent.set()

        thread = threading.Thread(target=send, name="offsets", daemon=True)
        thread.start()
        thread.join(2 * PATIENCE_S)
        if thread.is_alive():
            self.is_dead = True
            self.error = self.error or "librdkafka does not come back from send_offsets_to_transaction"
        return sent.is_set()

    def _insist(self, call: Callable[[], None]) -> KafkaError | None:
        """Retry as long as that may help; returns the error that remains."""
        deadline = self._now_ns() + int(PATIENCE_S * 1e9)
        while True:
            try:
                call()
            except KafkaException as raised:
                problem: KafkaError = raised.args[0]
            else:
                return None
            self.error = self.error or problem.str()
            self.is_dead |= problem.fatal()
            if not problem.retriable() or self._now_ns() > deadline:
                return problem
