"""Waits until no transaction is open: until every partition's last stable offset is its high watermark. Then
asks how far groups have committed.

Producers of open ones are closed by then; the coordinator aborts them at their timeout. The ends of
partitions at the end of the wait are recorded in the history: a last stable offset below the high watermark
then belongs to a hanging transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from chaos.workload.consumer import ReadingClient
from chaos.workload.journal import Journal

SETTLE_S: Final = 20.0
"""Beyond the timeout, in a quiet cluster: Kafka looks for such transactions every 10 s, then come markers."""
LOOK_S: Final = 0.25

Ends = dict[str, tuple[int, int]]
"""By key: last stable offset, high watermark."""


def settle(bootstrap: str, keys: Sequence[str], journal: Journal, patience_s: float) -> None:
    stable = ReadingClient(bootstrap)
    high = ReadingClient(bootstrap, isolation="read_uncommitted")
    start = journal.now_ns()
    deadline = start + int(patience_s * 1e9)
    ends: Ends = {}
    try:
        while not _are_settled(ends, keys) and journal.now_ns() < deadline:
            time.sleep(LOOK_S if ends else 0.0)
            ends |= _ask(stable, high, [key for key in keys if not _are_settled(ends, [key])])
    finally:
        stable.end()
        high.end()
    journal.note("ends", start, "ok", final=True, ends=ends)


def ask_committed(
    bootstrap: str, group: str, keys: Sequence[str], journal: Journal, patience_s: float
) -> None:
    """Nothing is recorded where no coordinator answers: then the checker says what it could not judge."""
    reader = ReadingClient(bootstrap, group, commits=False)
    start = journal.now_ns()
    deadline = start + int(patience_s * 1e9)
    try:
        while (offsets := reader.committed(keys)) is None and journal.now_ns() < deadline:
            time.sleep(LOOK_S)
    finally:
        reader.end()
    if offsets is not None:
        journal.note("committed", start, "ok", final=True, group=group, committed=offsets)


def _are_settled(ends: Ends, keys: Sequence[str]) -> bool:
    return all(key in ends and ends[key][0] == ends[key][1] for key in keys)


def _ask(stable: ReadingClient, high: ReadingClient, keys: Sequence[str]) -> Ends:
    """Of those whose leader answers. The high watermark is requested first: only markers are written now, and
    the last stable offset must not be older than what they add."""
    ends: Ends = {}
    for key in keys:
        above, below = high.end_of(key), stable.end_of(key)
        if above is not None and below is not None:
            ends[key] = (min(below, above), above)
    return ends
