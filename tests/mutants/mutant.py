"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    path: str
    before: str  # is there exactly once
    after: str


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    source: str
    broken: str
    """The rule that no longer holds."""
    edits: tuple[Edit, ...]
    finders: tuple[str, ...]
    """For pytest: the first that fails has found it."""


def mutant(
    name: str,
    source: str,
    broken: str,
    path: str,
    before: str,
    after: str,
    finders: tuple[str, ...],
    *also: Edit,
) -> Mutant:
    """`finders`: below tests/. `also`: where the rule is kept twice."""
    return Mutant(
        name, source, broken, (Edit(path, before, after), *also), tuple(f"tests/{each}" for each in finders)
    )
