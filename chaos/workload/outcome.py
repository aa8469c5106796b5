"""What a delivery report proves about one message: ok, fail or info.

    ok     the cluster acknowledged it (at acks=0: the client has written it to a socket)
    fail   it surely is in no log and never will be
    info   unknown

librdkafka retries on its own, and its report covers the last attempt only: a refusal by the second leader
does not show what the first one did before its response was lost. So even a definite refusal proves a
failure only when it answers the first attempt, that is when it came within the shortest backoff after the
message was handed over. The C library has more (its message status), but Python's binding does not expose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError

from chaos.history import Outcome

RETRY_BACKOFF_MS: Final = 100
"""librdkafka's default, set explicitly because the proof rests on it."""
FIRST_ATTEMPT_MS: Final = RETRY_BACKOFF_MS // 2
"""A report this young answers the first attempt: the backoff's jitter is a fifth of it."""

REFUSALS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Errors that a broker returns before it appends, and that librdkafka does not retry.

Not here: what may come after the append (NOT_ENOUGH_REPLICAS_AFTER_APPEND; NOT_LEADER_FOR_PARTITION too, when
the leader was replaced while the request waited), timeouts, lost connections, errors of the disk, and
whatever was purged: a message in the client's queue may have been put back there by an attempt that
reached the broker."""


def outcome_of(error: KafkaError | None, age_ms: float) -> Outcome:
    """`age_ms`: from handing the message over to its report."""
    if error is None:
        return "ok"
    if error.code() in REFUSALS and age_ms < FIRST_ATTEMPT_MS:
        return "fail"
    return "info"


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Of an operation with several sends: ok or fail where all are, else unknown."""
    distinct = set(outcomes)
    return distinct.pop() if len(distinct) == 1 else "info"
