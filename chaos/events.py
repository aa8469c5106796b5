"""What was done to a run's cluster, and when: events.jsonl, which expectations and the report read.

    {"time":3000112233,"kind":"begin","fault":"cut 2>1","detail":"follower(all-0) is 2, leader(all-0) is 1"}
    {"time":9000004455,"kind":"end","fault":"cut 2>1","detail":null}
    {"time":9000104455,"kind":"point","fault":"healed","detail":null}

`begin` and `end` pair by their text. A `point` has no duration: what cannot be undone, and remarks, such as
a fault that was skipped, or a node that ended by itself. Times are nanoseconds since the start of the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

Kind = Literal["begin", "end", "point"]

SKIPPED = "skipped"
"""A point: a step that found nothing to act on; the detail is the step."""
ENDED_ITSELF = "ended itself"
"""A point: a node ended without a fault; the detail is which one, and how."""
LINKS_RENEWED = "links renewed"
"""A point: Toxiproxy hung, and another took its place; every connection through it broke."""
CALM = "calm"
"""A point: every fault is lifted; the bounds of healing count from here."""
HEALED = "healed"
"""A point: every partition has a leader and a full ISR, and there is a controller."""

DECIDED = "decided"
"""Who, in a story: the cluster, by a rule."""


class Event(NamedTuple):
    time: int  # ns
    kind: Kind
    fault: str
    detail: str | None = None


class EventLog:
    """Writes events as they happen, and keeps them."""

    def __init__(
        self, path: Path, clock: Callable[[], int], listener: Callable[[Event], None] = lambda _: None
    ) -> None:
        self._file: TextIO = path.open("w", buffering=1, encoding="utf-8")
        self.clock = clock
        self._listener = listener
        self.events: list[Event] = []

    def begin(self, fault: str, detail: str | None = None, at: int | None = None) -> None:
        """`at`: where it is known only later that it did begin."""
        self._note("begin", fault, detail, at)

    def end(self, fault: str, detail: str | None = None) -> None:
        self._note("end", fault, detail)

    def point(self, fault: str, detail: str | None = None) -> None:
        self._note("point", fault, detail)

    def _note(self, kind: Kind, fault: str, detail: str | None, at: int | None = None) -> None:
        event = Event(self.clock() if at is None else at, kind, fault, detail)
        self._file.write(json.dumps(event._asdict(), separators=(",", ":")) + "\n")
        self.events.append(event)
        self._listener(event)

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Sequence[Event]:
    """The events of a run; a line torn by the end of its writer is left out."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            events.append(Event(**json.loads(line)))
    return events
