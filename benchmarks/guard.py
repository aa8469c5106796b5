"""`make bench-guard`: what a produce and a fetch cost, against the baseline in guard.json.

Counted are instructions (valgrind's cachegrind) of a fixed script (scripted.py) that runs three nodes in one
process: runs that differ only in how many requests of a kind are sent, so that start and end drop out. They
run at the same time, for what else the machine does is not counted. Without valgrind the unit is CPU time, in
steps of a loop that is timed just before and after: worth less on a busy machine.

More than 5 % above the baseline is a failure; so is 5 % below, for then the baseline is to be written again:

    make bench-guard WRITE=1

There is a baseline for each version of Python, and for compiled and pure: others have other instructions.
Where there is none, nothing is compared.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.scripted import BURST, NODES
from kraft.variant import variant

BASELINE: Final = Path(__file__).with_name("guard.json")
TOLERANCE: Final = 0.05
CPU_ROUNDS: Final = 5
CALIBRATION_STEPS: Final = 300_000
COUNTED: Final = re.compile(r"I +refs: +([\d,]+)")
ENVIRONMENT: Final = {**os.environ, "PYTHONHASHSEED": "0"}

Costs = Mapping[str, float]
"""Of one request, by the kind of it."""


@dataclass(frozen=True)
class Kind:
    """A kind of request, and how many the script sends for each step of its option."""

    name: str
    option: str
    few: int
    more: int
    requests: int


KINDS: Final = (Kind("produce", "--bursts", 16, 48, NODES * BURST), Kind("fetch", "--fetches", 32, 160, 1))


def script(steps: Mapping[str, int]) -> list[str]:
    """`steps`: by option."""
    options = [word for option, count in steps.items() for word in (option, str(count))]
    return [sys.executable, "-m", "benchmarks.scripted", *options]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)


def count_instructions(steps: Mapping[str, int]) -> int:
    """Of a whole run."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    counted = COUNTED.search(run([*valgrind, *script(steps)]).stderr)
    assert counted is not None, "valgrind did not print the number of instructions"
    return int(counted[1].replace(",", ""))


def instructions() -> Costs:
    """Of one request: the difference between two runs."""
    few = {kind.option: kind.few for kind in KINDS}
    run(script(few))  # or whichever run compiles a module's bytecode counts that, too
    runs = [few, *({**few, kind.option: kind.more} for kind in KINDS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        base, *more = pool.map(count_instructions, runs)
    return {
        kind.name: round((total - base) / (kind.more - kind.few) / kind.requests)
        for kind, total in zip(KINDS, more, strict=True)
    }


def calibration_s() -> float:
    """CPU time of a loop that does nothing of interest: how fast this machine is just now."""
    began = time.process_time()
    total = 0
    for i in range(CALIBRATION_STEPS):
        total += i
    return time.process_time() - began


def cpu_loops() -> Costs:
    """CPU time of one request, in steps of the calibrating loop; the best of some rounds."""
    best = {kind.name: float("inf") for kind in KINDS}
    for _ in range(CPU_ROUNDS):
        before = calibration_s()
        spent = run(script({kind.option: kind.more for kind in KINDS})).stdout.split()
        step_s = min(before, calibration_s()) / CALIBRATION_STEPS
        for kind, cpu_s in zip(KINDS, spent, strict=True):
            cost = float(cpu_s) / kind.more / kind.requests / step_s
            best[kind.name] = min(best[kind.name], round(cost, 1))
    return best


def compared(kind: str, unit: str, cost: float, baseline: float) -> tuple[bool, str]:
    """Whether it passes, and a line that says why."""
    change = cost / baseline - 1
    line = f"{kind}: {cost:,.0f} {unit}, baseline {baseline:,.0f} ({change:+.1%})"
    if abs(change) <= TOLERANCE:
        return True, line
    advice = "it costs more" if change > 0 else "it costs less: make bench-guard WRITE=1"
    return False, f"{line}: {advice}"


def main(
    write: Annotated[bool, typer.Option(help="Write what is measured now as the baseline.")] = False,
) -> None:
    """Compare the cost of requests with the baseline."""
    measure: Callable[[], Costs]
    unit, measure = (
        ("instructions", instructions) if shutil.which("valgrind") else ("loops of CPU", cpu_loops)
    )
    name = f"python {sys.version_info.major}.{sys.version_info.minor}, {variant()}, {unit}"
    numbers = json.loads(BASELINE.read_text())
    if name not in numbers and not write:
        typer.echo(f"skipped: there is no baseline for {name}; make bench-guard WRITE=1 writes one")
        return
    costs = measure()
    if write:
        numbers[name] = costs
        BASELINE.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n")
    results = [compared(kind, unit, cost, numbers[name][kind]) for kind, cost in costs.items()]
    for _, line in results:
        typer.echo(line)
    if not all(passed for passed, _ in results):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
