"""What a client does next, drawn from a seed: no clock, no cluster, the same steps for the same seed.

Every worker has a generator of its own, so that the order in which threads happen to run changes nothing.
A step is only a request; the worker records its outcome.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from chaos.history import topic_of

MOST_SENDS: Final = 4
MOST_SENDS_OF_A_TRANSACTION: Final = 8
LONGEST_HEAD_START_S: Final = 0.02


Ending = Literal["commit", "abort", "crash", "zombie"]
"""Of a transaction. crash: its producer is dropped in the midst of it. zombie: another producer takes
its id over, and then it continues to write and requests the commit."""


@dataclass(frozen=True, slots=True)
class Endings:
    """Weights."""

    commit: float = 80
    abort: float = 14
    crash: float = 3
    zombie: float = 3

    def draw(self, rng: random.Random) -> Ending:
        weights = (self.commit, self.abort, self.crash, self.zombie)
        kinds: tuple[Ending, ...] = ("commit", "abort", "crash", "zombie")
        return rng.choices(kinds, weights)[0]


@dataclass(frozen=True, slots=True)
class Mix:
    """Weights of the steps. `crash` and those that change what is read are rare: between
    them a process must do enough for the checker to compare."""

    send: float = 50
    poll: float = 45
    assign: float = 0.5
    subscribe: float = 0.5
    crash: float = 0.2
    endings: Endings = Endings()
    """Of transactions, which are what a send is where a topic is written in them."""


@dataclass(frozen=True, slots=True)
class SendStep:
    """One operation: these values to these keys, in this order."""

    sends: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PollStep:
    pass


@dataclass(frozen=True, slots=True)
class AssignStep:
    """Read these partitions, from this worker's last position or from the beginning."""

    keys: tuple[str, ...]
    from_beginning: bool


@dataclass(frozen=True, slots=True)
class SubscribeStep:
    """Read these topics as a member of the group."""

    topics: tuple[str, ...]
    keys: tuple[str, ...]
    """Their partitions: what the group shares out."""


@dataclass(frozen=True, slots=True)
class CrashStep:
    """Throw the client away, `head_start_s` after these sends were handed to it."""

    sends: tuple[tuple[str, int], ...]
    head_start_s: float
    static_member: bool
    """The next client joins groups as a static member: when it is dropped it does not leave the group."""


@dataclass(frozen=True, slots=True)
class TransactStep:
    """One transaction; `late`: what a zombie writes when it is one."""

    sends: tuple[tuple[str, int], ...]
    ending: Ending
    late: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class CopyStep:
    """One transaction of what a copier finds."""

    ending: Ending


Step = SendStep | PollStep | AssignStep | SubscribeStep | CrashStep | TransactStep


class Values:
    """Numbers that no other worker sends: worker, worker + workers, worker + 2 * workers, ..."""

    def __init__(self, worker: int, workers: int) -> None:
        self._next = worker
        self._stride = workers

    def take(self) -> int:
        value = self._next
        self._next += self._stride
        return value


def steps(
    rng: random.Random,
    mix: Mix,
    values: Values,
    written: Sequence[str],
    read: Sequence[str],
    *,
    transactional: bool = False,
) -> Iterator[Step]:
    """Without end. `written` and `read` are keys; a client is assigned partitions before it polls.
    `transactional`: what it sends, it sends in transactions."""
    kinds = ("send", "poll", "assign", "subscribe", "crash")
    weights = tuple(getattr(mix, kind) for kind in kinds)
    if not written:
        weights = (0, *weights[1:])
    yield _reading(rng, mix, read)
    while True:
        kind = rng.choices(kinds, weights)[0]
        if kind == "send" and transactional:
            yield _transaction(rng, mix.endings, values, written)
        elif kind == "send":
            yield SendStep(_sends(rng, values, written))
        elif kind == "poll":
            yield PollStep()
        elif kind == "assign":
            yield _assign(rng, read)
        elif kind == "subscribe":
            yield _subscribe(rng, read)
        else:
            has_sent = written and not transactional and rng.random() < 0.5
            in_flight = _sends(rng, values, written) if has_sent else ()
            yield CrashStep(in_flight, rng.uniform(0, LONGEST_HEAD_START_S), rng.random() < 0.5)
            yield _reading(rng, mix, read)


def copy_steps(rng: random.Random, endings: Endings) -> Iterator[CopyStep]:
    """Without end."""
    while True:
        yield CopyStep(endings.draw(rng))


def _transaction(
    rng: random.Random, endings: Endings, values: Values, written: Sequence[str]
) -> TransactStep:
    ending = endings.draw(rng)
    sends = _sends(rng, values, written, MOST_SENDS_OF_A_TRANSACTION)
    late = _sends(rng, values, written) if ending == "zombie" and rng.random() < 0.5 else ()
    return TransactStep(sends, ending, late)


def _sends(
    rng: random.Random, values: Values, written: Sequence[str], most: int = MOST_SENDS
) -> tuple[tuple[str, int], ...]:
    count = rng.randint(1, most)
    return tuple((rng.choice(written), values.take()) for _ in range(count))


def _reading(rng: random.Random, mix: Mix, read: Sequence[str]) -> Step:
    both = mix.assign + mix.subscribe
    if both and rng.random() * both < mix.subscribe:
        return _subscribe(rng, read)
    return _assign(rng, read)


def _assign(rng: random.Random, read: Sequence[str]) -> AssignStep:
    return AssignStep(_some(rng, read), from_beginning=rng.random() < 0.25)


def _subscribe(rng: random.Random, read: Sequence[str]) -> SubscribeStep:
    topics = _some(rng, list(dict.fromkeys(map(topic_of, read))))
    return SubscribeStep(topics, tuple(key for key in read if topic_of(key) in topics))


def _some(rng: random.Random, names: Sequence[str]) -> tuple[str, ...]:
    """All of them, or (as often) some of them; in their order."""
    if rng.random() < 0.5:
        return tuple(names)
    chosen = set(rng.sample(names, rng.randint(1, len(names))))
    return tuple(name for name in names if name in chosen)
