"""`kraft sim`: which seeds are run, what is left of one that fails, and how that is run again. The runs are
made up: what a seed does is in the other files."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from chaos.simulator import run, shrink
from chaos.simulator.cli import app
from chaos.simulator.draws import Draws
from chaos.simulator.faults import SimFault
from chaos.simulator.profile import PROFILES, Profile, profile_of
from chaos.simulator.run import BrokenRule
from chaos.simulator.shrink import Shrinker, ShrunkRun

KILL = SimFault.parse("at 1 for 2: kill 4")
FAULTS = [SimFault.parse(f"at {at} for 1: pause leader") for at in range(2, 9)]
DEVIATING = [f"link n{one} n{other}" for one in range(1, 7) for other in range(1, 7)]
NEEDED = "link n4 n5"


class MadeUpRun:
    """It fails where `all` is written, broker 5 is there, 4 is killed, and one link deviates."""

    made: ClassVar[list[MadeUpRun]] = []

    def __init__(
        self,
        seed: int,
        profile: Profile,
        seconds: float,
        *,
        faults: Sequence[SimFault] | None = None,
        deviating: Collection[str] | None = None,
        **_: object,
    ) -> None:
        self.seed, self.profile, self.seconds = seed, profile, seconds
        self.faults = [*FAULTS[:3], KILL, *FAULTS[3:]] if faults is None else list(faults)
        self.deviating = deviating
        self.player = SimpleNamespace(faults=self.faults)
        self.draws = SimpleNamespace(deviating=dict.fromkeys(DEVIATING if deviating is None else deviating))
        self.made.append(self)

    def run(self) -> Any:
        is_bad = (
            KILL in self.faults
            and "all" in self.profile.topics
            and 5 in self.profile.shape.brokers
            and NEEDED in self.draws.deviating
        )
        broken = [BrokenRule(2.5, "unseen", "all-0")] if is_bad else []
        visited: Mapping[str, int] = {"election": 1}
        return SimpleNamespace(
            seed=self.seed, profile=self.profile.name, violations=broken, ok=not broken,
            story=SimpleNamespace(visited=visited, until=lambda *_: []), simulated_s=20.0, events=1, digest=1,
            operations={}, partitions=[],
        )  # fmt: skip


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(MadeUpRun, "made", [])
    monkeypatch.setattr(run, "Simulation", MadeUpRun)
    monkeypatch.setattr(shrink, "Simulation", MadeUpRun)
    yield
    logging.disable(logging.NOTSET)


def sim(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_seeds_are_run_until_one_fails() -> None:
    done = sim("run", "--seeds", "3..5", "--profile", "separate-harsh")
    assert done.exit_code == 1
    assert "visited: 1 election\nfailed: 3\n" in done.output
    assert (
        "failed: 3, 4, 5\n" in sim("run", "--seeds", "3..5", "--profile", "separate", "--keep-going").output
    )
    held = sim("run", "--seeds", "1..2", "--profile", "transactions")
    assert (held.exit_code, held.output.splitlines()[-1]) == (0, "no seed failed")
    sim("run", "--seeds", "7..9", "--keep-going", "--seconds", "60")
    taken = [(each.seed, each.profile, each.seconds) for each in MadeUpRun.made[-3:]]
    assert taken == [(seed, profile_of(seed), 60.0) for seed in (7, 8, 9)]


def test_everything_that_does_not_matter_is_taken_away() -> None:
    shrunk = Shrinker(1, PROFILES["separate-harsh"], 30.0, lambda line: None).shrink()
    assert shrunk is not None
    left = shrunk.run
    assert left.faults == [KILL]
    assert list(left.profile.topics) == ["all"]
    assert left.profile.readers == 0
    assert left.profile.shape.brokers == (4, 5), "a fault names 4"
    assert left.profile.shape.controllers == (1, 2, 3)
    assert left.deviating == [NEEDED]
    assert left.seconds == KILL.at_s + KILL.for_s + shrink.SETTLE_S


def test_what_is_left_can_be_replayed(tmp_path: Path) -> None:
    printed = sim("shrink", "1", "--profile", "separate-harsh")
    assert printed.exit_code == 1
    assert str(KILL) in printed.output
    line = next(line for line in printed.output.splitlines() if "kraft sim replay" in line)
    _, _, *words = shlex.split(line.removeprefix("# "))
    faults = tmp_path / "faults"
    faults.write_text(f"{KILL}\n")
    words[words.index("FILE")] = str(faults)
    sim(*words, "--report", str(tmp_path / "report"))
    again = MadeUpRun.made[-1]
    assert again.run().violations
    expected = Shrinker(1, PROFILES["separate-harsh"], 20.0, lambda line: None).shrink()
    assert expected is not None
    assert ShrunkRun(again.profile, again.faults, again.seconds, again.deviating) == expected.run
    assert sim("replay", "1", "--without", "writers").exit_code != 0


def test_a_seed_that_holds_is_not_cut_down() -> None:
    done = sim("shrink", "1", "--profile", "transactions")
    assert (done.exit_code, done.output) == (0, "seed 1 does not fail\n")


def test_what_is_steady_draws_the_same_and_everything_else_is_as_it_was() -> None:
    whole, steady = Draws(3), Draws(3, deviating={"link a b"})
    for name in ("link a b", "faults", "client reader0"):
        assert whole.stream(name).random() == steady.stream(name).random()
    for name in ("link b a", "disk of a", "threads of a"):
        drawn = {steady.stream(name).random() for _ in range(5)}
        assert len(drawn) == 1
        assert 0.99 < drawn.pop() < 1.0
    assert list(steady.deviating) == ["link a b"]
    assert list(whole.deviating) == ["link a b"]
