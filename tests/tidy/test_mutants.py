"""The mutants fit the sources: each edit's text is there exactly once, and the table of the documentation
names each of them. `make mutants` runs them."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.table import MUTANTS

ROOT = Path(__file__).parents[2]
LEAST = 30


def test_every_mutant_fits_the_sources() -> None:
    misfits = [
        f"{mutant.name}: {edit.path} has it {count} times"
        for mutant in MUTANTS
        for edit in mutant.edits
        if (count := (ROOT / edit.path).read_text().count(edit.before)) != 1
    ]
    assert misfits == []


def test_there_are_enough_of_them_and_each_has_one_name() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= LEAST


def test_the_documentation_has_the_table() -> None:
    text = (ROOT / "docs" / "SIMULATION.md").read_text()
    assert [mutant.name for mutant in MUTANTS if f"| {mutant.name} |" not in text] == []
