"""The steps of a log's history (log_histories.py): drawn from a seed, and made fewer where it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final


@dataclass(frozen=True)
class Step:
    """One step: what, and the numbers that it draws upon."""

    what: str
    numbers: tuple[int, ...]
    later_ms: int


WEIGHTS: Final = {
    "put": 30, "transact": 25, "end_some": 15, "roll": 8, "clean": 12, "truncate": 4, "kill": 8, "restart": 2,
    "power_loss": 3, "lose_tail": 3, "flush": 4, "delete_records": 3, "retire": 2, "elect": 4,
    "restart_empty": 1, "expire": 2, "move": 12,
}  # fmt: skip
MEANWHILE: Final = (
    "put", "transact", "end_some", "roll", "flush", "delete_records", "retire", "elect", "expire",
    "truncate", "restart_empty", "kill", "power_loss", "move", "move",
)  # fmt: skip
"""What may come between two steps of a truncation or of a cleaning."""


def draw(seed: int) -> list[Step]:
    random = Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    return [
        Step(
            random.choices(kinds, weights)[0],
            tuple(random.randrange(1 << 16) for _ in range(4)),
            random.choice((0, 1, 50, 700, 3_000)),
        )
        for _ in range(random.randint(10, 60))
    ]


def shrunk(fails: Callable[[list[Step]], bool], steps: list[Step]) -> list[Step]:
    """Leave out what can be left out."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if fails(fewer):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps
