"""What happened in a run, as people read it: when, to whom, what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple


class Happening(NamedTuple):
    """One line of a story."""

    at_s: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:10.4f}  {self.who:8}  {self.what}"


class Story:
    """Told while it happens."""

    def __init__(self, listener: Callable[[Happening], None] | None = None) -> None:
        self.lines: list[Happening] = []
        self.visited: Counter[str] = Counter()
        """How often each kind of state was reached: what never was has not been tested."""
        self._listener = listener

    def tell(self, at_s: float, who: str, what: str) -> None:
        happening = Happening(at_s, who, what)
        self.lines.append(happening)
        if self._listener is not None:
            self._listener(happening)

    def until(self, at_s: float, most: int) -> list[Happening]:
        """The last lines up to a time."""
        return [line for line in self.lines if line.at_s <= at_s][-most:]

    def visit(self, state: str) -> None:
        self.visited[state] += 1
