"""Waits until no transaction is open: until every partition's last stable offset is its high watermark.

Whoever left one open is gone by then; its coordinator aborts it when its time is over. Where partitions ended
when the patience did goes into the history: an offset that is still held back belongs to a transaction that
hangs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from chaos.workload.journal import Journal
from chaos.workload.producer import CLIENT_SETTINGS, SILENT

SETTLE_S: Final = 20.0
"""Beyond the timeout, in a quiet cluster: Kafka looks for such transactions every 10 s, then come markers."""
REQUEST_S: Final = 5.0
LOOK_S: Final = 0.25

Ends = dict[str, tuple[int, int]]
"""By key: last stable offset, high watermark."""


def settle(bootstrap: str, keys: Sequence[str], journal: Journal, patience_s: float) -> None:
    admin = AdminClient({**CLIENT_SETTINGS, "bootstrap.servers": bootstrap}, logger=SILENT)
    start = journal.now_ns()
    deadline = start + int(patience_s * 1e9)
    ends: Ends = {}
    while True:
        try:
            ends = _ask(admin, keys)
        except KafkaException:
            pass  # a leader may still be on its way
        else:
            if all(stable == high for stable, high in ends.values()):
                break
        if journal.now_ns() > deadline:
            break
        time.sleep(LOOK_S)
    journal.note("ends", start, "ok" if ends else "fail", final=True, ends=ends)


def _ask(admin: AdminClient, keys: Sequence[str]) -> Ends:
    """Raises KafkaException. The stable end is asked first: it cannot overtake the other."""
    parts = [TopicPartition(topic, int(number)) for topic, _, number in (key.rpartition("-") for key in keys)]
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    stable, high = (
        admin.list_offsets(dict.fromkeys(parts, latest), isolation_level=isolation, request_timeout=REQUEST_S)
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return {
        f"{part.topic}-{part.partition}": (stable[part].result().offset, high[part].result().offset)
        for part in parts
    }
