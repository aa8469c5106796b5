"""The story of a run as lines of text: what was done to the cluster, what it decided and why; and the words
that the page uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from chaos.events import Event
from chaos.report.buckets import milliseconds
from chaos.report.recorded import RecordedRun

MOST_LINES: Final = 400
DONE: Final = "done"
"""Who: the lab itself."""

WORDS: Final = (
    ("acks=0, 1, all", "what a client waits for: nothing, the leader, or every replica in sync"),
    ("ISR", "in-sync replicas: those that have all that is committed, and may be elected"),
    ("ELR", "eligible leader replicas: they left the ISR, but still have all that is committed"),
    ("high watermark (HW)", "up to there a log is on every replica in sync: committed, and shown to readers"),
    ("leader epoch", "counts the leaders of a partition; whoever speaks of an older one is refused"),
    ("controller, term", "the node that decides for the cluster, and the count of its elections"),
    ("fenced", "a broker that sends no heartbeats: it leads nothing, and is in no ISR"),
    ("unclean election", "of a replica that was not in sync: what it lacks is lost"),
    ("ok, fail, info", "an operation happened; surely did not; or nobody knows"),
    ("final read", "when all is quiet, fresh clients read every partition from its beginning"),
    ("forbidden", "an anomaly that the mode of its topic rules out: the run is broken"),
    ("allowed", "one that the mode tolerates, as a loss at acks=1"),
    ("expected", "a loss that is on the run's ledger: an unclean election was allowed, and took place"),
)  # fmt: skip


def narrative(run: RecordedRun) -> dict[str, Any]:
    """Lines in the order of time, (ms, who, what), and how many are left out."""
    lines = sorted([*_done(run.events), *_decided(run)], key=lambda line: line[0])
    return {
        "scenario": run.verdict.get("story", ""),
        "schedule": run.schedule,
        "ledger": list(run.verdict.get("ledger", ())),
        "lines": lines[:MOST_LINES],
        "left_out": max(len(lines) - MOST_LINES, 0),
        "words": WORDS,
    }


def _done(events: Any) -> Iterator[tuple[float, str, str]]:
    event: Event
    for event in events:
        verb = {"begin": " begins", "end": " ends", "point": ""}[event.kind]
        detail = f" ({event.detail})" if event.detail else ""
        yield milliseconds(event.time), DONE, f"{event.fault}{verb}{detail}"


def _decided(run: RecordedRun) -> Iterator[tuple[float, str, str]]:
    for line in run.story:
        yield milliseconds(line["time"]), line["who"], line["what"]
