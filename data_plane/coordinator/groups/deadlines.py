"""When the time of each of many parties is up, and which is the first: members' sessions, above all.

Sessions are put off with every heartbeat and hardly ever end. So an entry of the heap stays where it is when
its deadline is put off, and is corrected when it gets to the top: what a heartbeat costs does not grow with
the group.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=str | tuple[object, ...])

NEVER: Final = float("inf")
MANY: Final = 2**31 - 1
_LEFT_BEHIND: Final = 64
"""Entries that count no more, before the heap is made again."""


class Deadlines(Generic[KeyT]):
    """Seconds, by key."""

    def __init__(self) -> None:
        self._at: dict[KeyT, float] = {}
        self._heap: list[tuple[float, KeyT]] = []
        self._queued: dict[KeyT, float] = {}
        """The entry of the heap that counts for a key: its deadline, or one that was put off since."""

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._at

    def entries(self) -> int:
        """How much memory it takes, of those that are gone too."""
        return len(self._heap)

    def longest_kept(self) -> KeyT:
        """Whichever of those that are there came first."""
        return next(iter(self._at))

    def at(self, key: KeyT) -> float:
        return self._at.get(key, NEVER)

    def set(self, key: KeyT, deadline: float) -> None:
        self._at[key] = deadline
        if deadline < self._queued.get(key, NEVER):
            self._queued[key] = deadline
            heapq.heappush(self._heap, (deadline, key))
            if len(self._heap) > 2 * len(self._queued) + _LEFT_BEHIND:
                self._heap = [(entered, each) for each, entered in self._queued.items()]
                heapq.heapify(self._heap)

    def discard(self, key: KeyT) -> None:
        self._at.pop(key, None)
        self._queued.pop(key, None)

    def earliest(self) -> float:
        """Infinity where there is none."""
        while self._heap:
            entered, key = self._heap[0]
            if self._queued.get(key) != entered:
                heapq.heappop(self._heap)
            elif (deadline := self._at[key]) != entered:
                self._queued[key] = deadline
                heapq.heapreplace(self._heap, (deadline, key))
            else:
                return entered
        return NEVER

    def due(self, now: float, most: int = MANY) -> list[KeyT]:
        """Whose time is up, in the order in which it was, the first `most`; they stay until they are put off
        or discarded."""
        found: list[tuple[float, KeyT]] = []
        while len(found) < most and (deadline := self.earliest()) <= now:
            _, key = heapq.heappop(self._heap)
            del self._queued[key]
            found.append((deadline, key))
        for deadline, key in found:
            self.set(key, deadline)
        return [key for _, key in found]


class Alarms:
    """When to look at which group. They are only put forward: one may ring early."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    def set(self, key: str, due: float) -> None:
        """An earlier one stays."""
        if due < self._at.get(key, NEVER):
            self._at[key] = due
            heapq.heappush(self._heap, (due, key))

    def earliest(self) -> float:
        return self._heap[0][0] if self._heap else NEVER

    def take(self, now: float) -> str | None:
        """The first whose alarm rings; it has none any more."""
        while self.earliest() <= now:
            due, key = heapq.heappop(self._heap)
            if self._at.get(key) == due:  # else superseded by an earlier one
                del self._at[key]
                return key
        return None
