"""A record as simulated clients write it: its key and headers follow from its value, and one header holds its
timestamp. So a reader sees whether it is what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metadata_quorum.foundation.batch import Record

KEYS: Final = 8
"""Distinct record keys."""
SENT: Final = "sent-ms"


def key_of(value: int) -> int:
    """The record key of a value, as the history has it."""
    return value % KEYS


def record_of(value: int, now_ms: int) -> Record:
    """To be sent."""
    headers = ((SENT, b"%d" % now_ms),)
    return Record(timestamp=now_ms, key=b"key-%d" % key_of(value), value=b"%d" % value, headers=headers)


def value_of(record: Record) -> int:
    """0, which no client sends, where it is none of theirs."""
    value = record.value or b""
    return int(value) if value.isdigit() else 0


def differences(record: Record) -> Iterator[str]:
    """Of what was read from what was sent: "key", "headers", "timestamp"."""
    if record.key != b"key-%d" % key_of(value_of(record)):
        yield "key"
    sent = [text for name, text in record.headers if name == SENT]
    if len(record.headers) != 1 or len(sent) != 1:
        yield "headers"
    elif sent[0] != b"%d" % record.timestamp:
        yield "timestamp"
