"""Many seeds of a scenario, several at a time, each in a process of its own: `make chaos`.

    python -m chaos.seeds --from 1 --count 100 --jobs 3 --seconds 60 --keep DIR

One line per seed. A run that holds leaves nothing; one that does not is kept whole in DIR/seed-N: its
history, report, schedule and the nodes' directories. Without a count it runs until Ctrl-C.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from chaos import events, schedule
from chaos.live.toxiproxy import find_server
from chaos.run import Plan, run
from chaos.run_files import EVENTS, SCHEDULE
from chaos.scenarios.table import SCENARIOS
from chaos.watchdog import ended_if_it_hangs
from kraft.cli.errors import INTERRUPTED, plain_errors
from kraft.local.free_ports import Ports
from kraft.node.process import outlive

CLEAN_UP_S = 10.0
"""For the nodes of a run, and its directories."""


class SeedOutcome(NamedTuple):
    seed: int
    ok: bool
    sentence: str


def run_seed(scenario: str, seed: int, seconds: float | None, keep: Path) -> SeedOutcome:
    """One run, and one sentence about it. What stops a run that should go on is its failure too."""
    directory = keep / f"seed-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    start = time.monotonic()
    with _stacks_of(directory).open("w") as stacks, ended_if_it_hangs(seconds or 0.0, stacks):
        outcome = _outcome(scenario, seed, seconds, directory, start)
    _stacks_of(directory).unlink()
    return outcome


def _stacks_of(directory: Path) -> Path:
    return directory.with_suffix(".stacks")


def _outcome(scenario: str, seed: int, seconds: float | None, directory: Path, start: float) -> SeedOutcome:
    plan = Plan(
        scenario=SCENARIOS[scenario],
        directory=directory,
        seed=seed,
        seconds=seconds,
        ports=Ports(part=seed),
    )
    try:
        verdict = run(plan)
    except Exception as error:  # noqa: BLE001 - whatever it was, the other seeds go on
        return SeedOutcome(seed, False, f"stopped by {type(error).__name__}: {error}; kept in {directory}")
    took_s = time.monotonic() - start
    if not verdict.ok:
        failed = "; ".join(f"{each.name}: {each.detail}" for each in verdict.expectations if not each.ok)
        return SeedOutcome(seed, False, f"{failed}; kept in {directory}")
    faults = len(schedule.parse((directory / SCHEDULE).read_text()))
    healed = next(e.detail for e in events.read(directory / EVENTS) if e.fault == events.HEALED)
    stats = verdict.checker["stats"]
    shutil.rmtree(directory)
    return SeedOutcome(
        seed,
        True,
        f"{faults} faults, {stats['acknowledged']:,} acks, {stats['polled']:,} polled; "
        f"after the heal {healed}; {took_s:.0f} s",
    )


def run_seeds(
    scenario: str,
    seeds: Iterator[int],
    jobs: int,
    seconds: float | None,
    keep: Path,
    say: Callable[[SeedOutcome], None],
) -> list[int]:
    """The seeds that failed."""
    failed: list[int] = []
    keep.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as threads:
        running: set[Future[SeedOutcome]] = set()
        try:
            while True:
                for seed in itertools.islice(seeds, jobs - len(running)):
                    running.add(threads.submit(_run_apart, scenario, seed, seconds, keep))
                if not running:
                    return failed
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    outcome = future.result()
                    say(outcome)
                    if not outcome.ok:
                        failed.append(outcome.seed)
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _run_apart(scenario: str, seed: int, seconds: float | None, keep: Path) -> SeedOutcome:
    """In a process of its own, so that one that hangs can be ended (watchdog.py) and the others go on."""
    with ProcessPoolExecutor(
        1, get_context("spawn"), initializer=end_with_parent, initargs=(os.getpid(),)
    ) as pool:
        try:
            return pool.submit(run_seed, scenario, seed, seconds, keep).result()
        except BrokenProcessPool:
            directory = keep / f"seed-{seed}"
            return SeedOutcome(
                seed, False, f"hung, and was ended; see {_stacks_of(directory)} and {directory}"
            )


def end_with_parent(parent: int, clean_up_s: float = CLEAN_UP_S) -> None:
    """A run must not outlive its parent, which waits for the result. The pool would keep Ctrl-C as such a
    result, and wait for a parent that is gone."""
    working = threading.get_ident()

    def wait_and_end() -> None:
        outlive(parent)
        # To the thread that works: a signal to the process may be taken by another one, and wake nobody.
        signal.pthread_kill(working, signal.SIGINT)
        time.sleep(clean_up_s)
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=wait_and_end, daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.seeds", description="Many seeds of a scenario.")
    parser.add_argument("scenario", nargs="?", default="everything", choices=sorted(SCENARIOS))
    parser.add_argument("--from", type=int, dest="first", default=1, metavar="SEED", help="the first seed")
    parser.add_argument("--count", type=int, help="how many; without it, until Ctrl-C")
    parser.add_argument("--seeds", metavar="N,N,...", help="these, in place of --from and --count")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--seconds", type=float, help="of faults per seed")
    parser.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument(
        "--keep", type=Path, default=Path("chaos-results"), metavar="DIR", help="failing runs"
    )
    options = parser.parse_args(arguments)
    seeds: Iterator[int] = itertools.count(options.first)
    if options.seeds is not None:
        seeds = iter([int(word) for word in options.seeds.split(",")])
    elif options.count is not None:
        seeds = itertools.islice(seeds, options.count)
    find_server()  # once, before several runs would build it at the same time

    seconds = 60 * options.minutes if options.minutes is not None else options.seconds
    held = 0

    def say(outcome: SeedOutcome) -> None:
        nonlocal held
        held += outcome.ok
        print(f"seed {outcome.seed}: {'held' if outcome.ok else 'BROKEN'}, {outcome.sentence}", flush=True)

    failed = run_seeds(options.scenario, seeds, options.jobs, seconds, options.keep, say)
    print(f"{held} held, {len(failed)} broken" + (f": {', '.join(map(str, failed))}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    with plain_errors():
        sys.exit(main(sys.argv[1:]))
