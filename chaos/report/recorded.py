"""The files of a run, read back. Nothing is checked or reduced here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import events, history
from chaos.events import Event
from chaos.history import History
from chaos.run_files import CLUSTER, EVENTS, HISTORY, SCHEDULE, STORY, VERDICT

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class RecordedRun:
    history: History
    events: Sequence[Event]  # what was done to the cluster
    cluster: Sequence[Fields]  # what was seen of it
    verdict: Fields
    story: Sequence[Fields] = ()  # what it decided, and by which rule
    schedule: str = ""

    @property
    def duration_ns(self) -> int:
        """From the start to the last entry of any file; long enough to be drawn."""
        ends = [operation.end for operation in self.history.operations]
        done = [event.time for event in self.events]
        seen: list[int] = [line["time"] for line in self.cluster]
        return max((*ends, *done, *seen, 1_000_000))

    @property
    def findings(self) -> Fields:
        """The checker's verdict."""
        return self.verdict.get("checker") or {}


def read(directory: Path) -> RecordedRun:
    """The run in `directory`. Events and cluster may be missing: a history of another cluster has none."""
    return RecordedRun(
        history=history.read(directory / HISTORY),
        events=events.read(directory / EVENTS) if (directory / EVENTS).exists() else (),
        cluster=_lines(directory / CLUSTER),
        verdict=json.loads((directory / VERDICT).read_text(encoding="utf-8")),
        story=_lines(directory / STORY),
        schedule=(directory / SCHEDULE).read_text() if (directory / SCHEDULE).exists() else "",
    )


def _lines(path: Path) -> list[Fields]:
    """One object per line, in the order of time. A last line torn by the end of its writer is left out."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return sorted((json.loads(line) for line in whole.splitlines()), key=lambda line: line["time"])
