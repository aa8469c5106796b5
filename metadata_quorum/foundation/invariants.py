"""Named invariants: what can only be false through a bug of ours.

`invariant(condition, NAME, ...)` survives `python -O`. The names are those of docs/INVARIANTS
in ARCHITECTURE.md, and the simulator's checkers use the same ones, so that a report from the
field and a failing seed speak of the same thing.

Lowest floor; everything may import it.
"""

from __future__ import annotations


class InvariantViolation(AssertionError):
    """A broken invariant. The node stops: going on could only spread the damage."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"invariant {name} broken: {detail}" if detail else f"invariant {name} broken")
        self.name = name
        self.detail = detail


def invariant(condition: bool, name: str, detail: object = "") -> None:
    """Raise `InvariantViolation` unless `condition` holds.

    `detail` is turned into text only on failure, so passing a tuple of values is cheap.
    """
    if not condition:
        raise InvariantViolation(name, str(detail))
