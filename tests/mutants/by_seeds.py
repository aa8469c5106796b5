"""How many seeds of the simulated cluster find each mutant: directed tests find what chance hardly meets.

    python -m tests.mutants.by_seeds [--seeds N] [--seconds S] [NAME ...]

The seeds follow one another through the profiles of the mutant's area. Counted is from one that fails to the
next; five of these counts are five tries, and the median is told. A mutant that fewer than three of N seeds
find is told as it is: so many of so many.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.controller import CONTROLLER
from tests.mutants.exactly_once import EXACTLY_ONCE
from tests.mutants.following import FOLLOWING
from tests.mutants.mutant import Mutant
from tests.mutants.quorum import QUORUM
from tests.mutants.run import applied, copied
from tests.mutants.storage import STORAGE

TRIES: Final = 5
ENOUGH: Final = 3
"""Of them, for a median."""
SEEDS: Final = 60
SECONDS: Final = 15.0
TIMEOUT_S: Final = 3600.0

AREAS: Final[Mapping[tuple[Mutant, ...], tuple[str, ...]]] = {
    FOLLOWING: ("stranded", "partial"),
    CONTROLLER: ("stranded", "partial"),
    QUORUM: ("combined-harsh", "five", "one-controller"),
    STORAGE: ("combined-harsh", "blackout", "transactions-harsh"),
    EXACTLY_ONCE: ("transactions", "transactions-harsh", "groups"),
}

# One line for each seed: whether it failed, and by which rule.
PROGRAM: Final = """
import logging, sys
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Simulation
logging.disable(logging.CRITICAL)
seeds, seconds, tries, *names = sys.argv[1:]
failed = 0
for seed in range(1, int(seeds) + 1):
    try:
        violations = Simulation(seed, PROFILES[names[seed % len(names)]], float(seconds)).run().violations
        rule = violations[0].rule if violations else ""
    except Exception as error:
        rule = repr(error)
    print(rule, flush=True)
    failed += bool(rule)
    if failed == int(tries):
        break
"""


class Sweep(NamedTuple):
    mutant: Mutant
    profiles: tuple[str, ...]
    rules: list[str]
    """What each seed violated, in their order; empty where it held."""
    took_s: float

    @property
    def counts(self) -> list[int]:
        """Seeds from one that fails to the next."""
        failed = [number for number, rule in enumerate(self.rules, 1) if rule]
        return [number - before for before, number in zip([0, *failed], failed, strict=False)]

    def __str__(self) -> str:
        counts = self.counts
        if len(counts) >= ENOUGH:
            found = f"{statistics.median(counts):g}"
        else:
            found = f"{len(counts)} of {len(self.rules)}"
        rule = next((rule for rule in self.rules if rule), "")
        return f"| {self.mutant.name} | {found} | {rule} | {', '.join(self.profiles)} | {self.took_s:.0f} s |"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of faults, in each seed")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = copied(Path(directory))
        for area, profiles in AREAS.items():
            for mutant in area:
                if not chosen.names or mutant.name in chosen.names:
                    print(sweep(copy, mutant, profiles, chosen.seeds, chosen.seconds), flush=True)


def sweep(copy: Path, mutant: Mutant, profiles: tuple[str, ...], seeds: int, seconds: float) -> Sweep:
    began = time.monotonic()
    with applied(copy, mutant):
        ran = subprocess.run(
            [sys.executable, "-B", "-c", PROGRAM, str(seeds), str(seconds), str(TRIES), *profiles],
            cwd=copy, capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
        )  # fmt: skip
    return Sweep(mutant, profiles, ran.stdout.splitlines(), time.monotonic() - began)


if __name__ == "__main__":
    main(sys.argv[1:])
