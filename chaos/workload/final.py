"""The end of a run: everything is read once more from the beginning, in a cluster that is quiet again.

What was acknowledged and does not show up here is lost; what was read before and does not show up here has
vanished. Each reader crashes its client, assigns all keys from their beginnings, and polls until every key
has reached its bound; a client that gets nowhere for a while is replaced, and its successor starts over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chaos.history import ACKS_ALL
from chaos.workload.generator import AssignStep
from chaos.workload.journal import Now
from chaos.workload.statistics import Statistics
from chaos.workload.topics import TopicSpec
from chaos.workload.worker import Worker

POLL_S: Final = 0.5
FRESH_CLIENT_NS: Final = 10 * 10**9
ASK_AGAIN_NS: Final = 10**9


def bounds_of(topics: Sequence[TopicSpec], statistics: Statistics) -> dict[str, int]:
    """How far every key must be read, wherever it seems to end: polled records are there for good, at
    acks=all acknowledged ones too; but records of an unfinished transaction may be aborted.

    Where unclean elections are allowed, a log may end for good before its acknowledged records: it is read to
    its end, and the checker reports what is missing."""
    bounds = {key: 0 for each in topics for key in each.keys}
    topics = [each for each in topics if not each.allows_unclean_election]
    written = [each for each in topics if not each.transactional]
    safe = {key for each in written if each.acks == ACKS_ALL for key in each.keys}
    certain = {key for each in topics for key in each.keys}
    for key, offset in statistics.highest_polled().items():
        if key in certain:
            bounds[key] = max(bounds[key], offset + 1)
    for key, offset in statistics.highest_acked().items():
        if key in safe:
            bounds[key] = max(bounds[key], offset + 1)
    return bounds


def read_all(worker: Worker, at_least: Mapping[str, int], deadline_ns: int, now_ns: Now) -> dict[str, int]:
    """Read every key of `at_least` up to that offset and to where it ends now; the keys that were not
    read so far when the time was up, with how far they were."""
    ends: dict[str, int] = {}
    while now_ns() < deadline_ns:
        worker.crash(final=True)
        worker.assign(AssignStep(tuple(at_least), from_beginning=True), final=True)
        if not _read_on(worker, at_least, ends, deadline_ns, now_ns):
            return {}
    return _missing(worker, at_least, ends)


def _read_on(
    worker: Worker, at_least: Mapping[str, int], ends: dict[str, int], deadline_ns: int, now_ns: Now
) -> dict[str, int]:
    """With one client, until all is read or it gets nowhere; what is missing."""
    ask_ns = moved_ns = now_ns()
    before: dict[str, int] = {}
    while (now := now_ns()) < deadline_ns and now < moved_ns + FRESH_CLIENT_NS:
        if now >= ask_ns:
            _ask_for_ends(worker, at_least, ends)
            ask_ns = now_ns() + ASK_AGAIN_NS
        if not _missing(worker, at_least, ends):
            return {}
        worker.poll(POLL_S, final=True)
        if worker.positions != before:
            before, moved_ns = dict(worker.positions), now_ns()
    return _missing(worker, at_least, ends)


def _ask_for_ends(worker: Worker, keys: Mapping[str, int], ends: dict[str, int]) -> None:
    for key in keys:
        if key not in ends and (end := worker.end_of(key)) is not None:
            ends[key] = end


def _missing(worker: Worker, at_least: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
    positions = worker.positions
    return {
        key: positions.get(key, 0)
        for key, bound in at_least.items()
        if key not in ends or positions.get(key, 0) < max(bound, ends[key])
    }
