"""The names of a run's files, all in its directory."""

from __future__ import annotations

from typing import Final

HISTORY: Final = "history.jsonl"
EVENTS: Final = "events.jsonl"
CLUSTER: Final = "cluster.jsonl"
STORY: Final = "story.jsonl"
"""What the cluster decided meanwhile, and by which rule."""
SCHEDULE: Final = "schedule.txt"
VERDICT: Final = "verdict.json"
NODES: Final = "cluster"
"""The nodes' own directories."""
REPORT: Final = "report.html"
TWIN: Final = "planted"
"""The record of the same schedule on a cluster with a planted bug."""
LIVE: Final = "live"
SIMULATED: Final = "simulated"
"""The records of the same schedule in the live lab and in the simulator, where they are compared."""

ALL: Final = (
    HISTORY, EVENTS, CLUSTER, STORY, SCHEDULE, VERDICT, REPORT, NODES, TWIN, LIVE, SIMULATED,
)  # fmt: skip
