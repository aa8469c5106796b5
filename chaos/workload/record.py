"""A record as the workload writes it: its key and headers follow from its value, and one header holds its
timestamp. So a consumer sees whether it is what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

KEYS: Final = 16
"""Distinct record keys."""

Headers = list[tuple[str, bytes]]


def record_of(value: int) -> dict[str, Any]:
    """What to give to `Producer.produce`."""
    now_ms = int(time.time() * 1000)
    return {
        "value": b"%d" % value,
        "key": _key_of(value),
        "headers": _headers_of(value, now_ms),
        "timestamp": now_ms,
    }


def differences(message: Message) -> Iterator[str]:
    """Of what was handed out from what was sent: "key", "headers", "timestamp"."""
    value = message.value()
    headers: Any = message.headers() or []
    assert isinstance(value, bytes)
    if message.key() != _key_of(int(value)):
        yield "key"
    sent_ms = next((int(found or 0) for name, found in headers if name == "sent-ms"), 0)
    if headers != _headers_of(int(value), sent_ms):
        yield "headers"
    if message.timestamp() != (TIMESTAMP_CREATE_TIME, sent_ms):
        yield "timestamp"


def _key_of(value: int) -> bytes:
    return b"key-%d" % (value % KEYS)


def _headers_of(value: int, sent_ms: int) -> Headers:
    return [("value", b"%d" % value), ("sent-ms", b"%d" % sent_ms)]
