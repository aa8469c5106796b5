"""What a delivery report proves: doubt is never called a failure, and never a success."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError

from chaos.checker import check
from chaos.history import ACKS_ALL, Header, History, Operation, Outcome, Poll, Send, TopicMode
from chaos.workload.outcome import FIRST_ATTEMPT_MS, outcome_of, together
from chaos.workload.producer import Dispatch, SendingClient
from chaos.workload.topics import Writing

AT_ONCE = FIRST_ATTEMPT_MS / 10


class Report:
    """As much of a message as a report has."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def offset(self) -> int | None:
        return self._offset


@pytest.mark.parametrize(
    ("code", "age_ms", "outcome"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, AT_ONCE, "fail"),
        (KafkaError.INVALID_RECORD, AT_ONCE, "fail"),
        # A second attempt was refused: the first may be in the log.
        (KafkaError.MSG_SIZE_TOO_LARGE, FIRST_ATTEMPT_MS, "info"),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, AT_ONCE, "info"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, AT_ONCE, "info"),
        (KafkaError.REQUEST_TIMED_OUT, AT_ONCE, "info"),
        (KafkaError.KAFKA_STORAGE_ERROR, AT_ONCE, "info"),
        (KafkaError._MSG_TIMED_OUT, 12_000, "info"),
        (KafkaError._TRANSPORT, AT_ONCE, "info"),
        (KafkaError._PURGE_INFLIGHT, AT_ONCE, "info"),
        (KafkaError._PURGE_QUEUE, AT_ONCE, "info"),
    ],
)
def test_only_a_refusal_of_the_first_attempt_proves_that_nothing_was_written(
    code: int, age_ms: float, outcome: Outcome
):
    assert outcome_of(KafkaError(code), age_ms) == outcome


def test_no_error_is_ok_however_late():
    assert outcome_of(None, 1e9) == "ok"


@pytest.mark.parametrize(
    ("outcomes", "outcome"),
    [
        (["ok", "ok"], "ok"),
        (["fail", "fail"], "fail"),
        (["ok", "fail"], "info"),
        (["ok", "info"], "info"),
        (["info"], "info"),
    ],
)
def test_several_sends_are_as_sure_as_all_of_them(outcomes: list[Outcome], outcome: Outcome):
    assert together(outcomes) == outcome


def test_a_dispatch_keeps_the_offsets_of_what_was_acknowledged():
    dispatch: Any = Dispatch([("t-0", 1), ("t-1", 2), ("t-0", 3), ("t-0", 4)], lambda: 0)
    dispatch.report_to(0)(None, Report(41))
    dispatch.report_to(1)(None, Report(-1))  # acks=0, or an old duplicate
    dispatch.refuse(2, "the client's queue is full")
    assert not dispatch.is_reported
    assert dispatch.outcomes == ["ok", "ok", "fail", "info"]
    dispatch.report_to(3)(KafkaError(KafkaError._MSG_TIMED_OUT), Report(None))
    assert dispatch.is_reported
    assert dispatch.outcomes == ["ok", "ok", "fail", "info"]
    assert dispatch.ops == (Send("t-0", 1, 41), Send("t-1", 2), Send("t-0", 3, failed=True), Send("t-0", 4))
    assert dispatch.error == "the client's queue is full"


def test_what_no_cluster_answered_is_unknown(free_ports: Any):
    """By timeout, and by being purged: librdkafka itself, with nobody at the other end."""
    client = SendingClient(
        f"127.0.0.1:{free_ports(1)[0]}", Writing(ACKS_ALL, True, False), 1.0, time.monotonic_ns
    )
    waited = client.send([("t-0", 1), ("t-1", 2)])
    client.wait(waited)
    assert waited.is_reported
    assert set(waited.outcomes) == {"info"}
    purged = client.send([("t-0", 3)])
    client.purge()
    assert purged.is_reported
    assert purged.outcomes == ["info"]
    client.end()


def test_a_refused_message_of_an_operation_that_is_unknown_is_nowhere():
    """Others of its operation are acknowledged, or may be in the log."""
    dispatch: Any = Dispatch([("t-0", 1), ("t-0", 2), ("t-0", 3)], lambda: 0)
    dispatch.report_to(0)(None, Report(0))
    dispatch.refuse(1, "the client's queue is full")
    sent = Operation(1, "send", 1, 2, together(dispatch.outcomes), dispatch.ops)
    assigned = Operation(2, "assign", 3, 3, "ok", keys=["t-0"], final=True)
    polled = Operation(2, "poll", 4, 5, "ok", [Poll({"t-0": [(0, 1), (1, 2), (2, 3)]})], final=True)
    verdict = check(History(Header({"t": TopicMode(1, ACKS_ALL)}), [sent, assigned, polled]))
    assert [(each.kind, each.detail["value"]) for each in verdict.anomalies] == [("G1a", 2)]
