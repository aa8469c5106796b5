"""`everything`: random faults of every kind, a list drawn from a seed before anything is broken.

Faults overlap, up to three at a time, but never so that more is lost than three replicas with two in sync can
tolerate: the disk of one node at most fails in a run. Any number of nodes may be killed, stopped, paused or
cut off at once, because the page cache outlives a killed process, and a cluster without a majority must only
wait.

Bounds rest on Kafka's own session of 9 s; the lag limit is 10 s in place of 30.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from chaos.scenarios.scenario import Scenario
from chaos.scenarios.settings import QUICK_TRANSACTIONS
from chaos.scenarios.transactions import COPIED_ONCE, SHORT_TRANSACTIONS
from chaos.schedule import Schedule, ScheduledFault
from chaos.workload import TopicSpec

NODES: Final = 3
CLIENTS: Final = 6
TOPICS: Final = (
    TopicSpec("txn", partitions=2, transactional=True),
    TopicSpec("copied", partitions=2, transactional=True, copy_of="txn"),
    TopicSpec("idempotent", partitions=2, idempotent=True),
    TopicSpec("all", partitions=2),
)
LAG_S: Final = 10.0
MOST_AT_ONCE: Final = 3
LONGEST_S: Final = 9.0
PAUSE_BEYOND_SESSION_S: Final = (9.5, 13.0)
FIRST_S: Final = 0.5
GAP_S: Final = 1.6
"""Between the beginnings of two faults, on average."""

_KEYS: Final = tuple(key for topic in TOPICS for key in topic.keys)


def draw(rng: random.Random, seconds: float) -> Schedule:
    """Every choice is made here and now; only roles wait to be filled."""
    steps: list[ScheduledFault] = []
    bad_disk = rng.randrange(1, NODES + 1)
    at = FIRST_S
    while at < seconds - 1.0:
        begins = round(at, 1)
        if sum(_is_on(step, begins) for step in steps) < MOST_AT_ONCE:
            steps.append(_step(rng, begins, seconds, bad_disk))
        at += rng.expovariate(1 / GAP_S)
    return tuple(steps)


def _is_on(step: ScheduledFault, at_s: float) -> bool:
    return not step.fault.startswith(_AT_ONCE) and (step.for_s is None or at_s < step.end_s)


def _step(rng: random.Random, at_s: float, seconds: float, bad_disk: int) -> ScheduledFault:
    kinds = list(WEIGHTS)
    kind = rng.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
    fault = _KINDS[kind](rng, bad_disk)
    lasts_s = rng.uniform(0.5, LONGEST_S) * rng.random() + 0.3
    if kind == "pause" and rng.random() < 0.4:
        lasts_s = rng.uniform(*PAUSE_BEYOND_SESSION_S)
    if kind in _SHORT:
        lasts_s = min(lasts_s, 3.0)
    if kind in _AT_ONCE:
        return ScheduledFault(at_s, fault)
    # What would last beyond the end is lifted with everything else: healing starts in the midst of faults.
    return ScheduledFault(at_s, fault, round(lasts_s, 1) if at_s + lasts_s < seconds else None)


def _node(rng: random.Random) -> str:
    """Leaders, controllers and coordinators are chased: most of the time it is them."""
    if rng.random() < 0.35:
        return f"leader({rng.choice(_KEYS)})"
    if rng.random() < 0.25:
        return "controller"
    if rng.random() < 0.25:
        return rng.choice(("coordinator", "coordinator(copies)", "coordinator(writer)"))
    return str(rng.randrange(1, NODES + 1))


def _pair(rng: random.Random) -> str:
    """Between two nodes, in one direction or both; now and then between a client and a node."""
    way = rng.choice((">", ">", "-"))
    if rng.random() < 0.2:
        ends = [f"c{rng.randrange(CLIENTS)}", str(rng.randrange(1, NODES + 1))]
        rng.shuffle(ends)
    elif rng.random() < 0.4:
        key = rng.choice(_KEYS)
        ends = [f"leader({key})", f"{rng.choice(('follower', 'other'))}({key})"]
        rng.shuffle(ends)
    else:
        ends = [str(node) for node in rng.sample(range(1, NODES + 1), 2)]
    return way.join(ends)


def _opened(rng: random.Random) -> str:
    """A direction in which connections are opened: `down` acts on those."""
    if rng.random() < 0.2:
        return f"c{rng.randrange(CLIENTS)}>{rng.randrange(1, NODES + 1)}"
    a, b = rng.sample(range(1, NODES + 1), 2)
    return f"{a}>{b}"


def _slow(rng: random.Random) -> str:
    latency = round(10 ** rng.uniform(2, 3.7))  # 0.1 s to 5 s
    return f"slow {_pair(rng)} {latency}ms {round(latency * rng.uniform(0, 0.9))}ms"


def _move(rng: random.Random) -> str:
    """To two of the nodes, or to all of them in another order."""
    nodes = rng.sample(range(1, NODES + 1), rng.choice((NODES - 1, NODES)))
    return f"move {rng.choice(_KEYS)} to {','.join(map(str, nodes))}"


_KINDS: Final[Mapping[str, Callable[[random.Random, int], str]]] = {
    "kill": lambda rng, disk: f"kill {_node(rng)}",
    "pause": lambda rng, disk: f"pause {_node(rng)}",
    "stop": lambda rng, disk: f"stop {_node(rng)}",
    "restart": lambda rng, disk: f"restart {_node(rng)}",
    "cut": lambda rng, disk: f"cut {_pair(rng)}",
    "isolate": lambda rng, disk: f"isolate {_node(rng)}{rng.choice(('', ' from all'))}",
    "deafen": lambda rng, disk: f"deafen {_node(rng)}",
    "mute": lambda rng, disk: f"mute {_node(rng)}",
    "slow": lambda rng, disk: _slow(rng),
    "bandwidth": lambda rng, disk: f"bandwidth {_pair(rng)} {rng.choice((2, 8, 32))}KB/s",
    "reset": lambda rng, disk: f"reset {_pair(rng)} {rng.choice((0, 5, 50, 500))}ms",
    "slow-close": lambda rng, disk: f"slow-close {_pair(rng)} {rng.choice((200, 1000, 3000))}ms",
    "timeout": lambda rng, disk: f"timeout {_pair(rng)} {rng.choice((100, 1000, 3000))}ms",
    "slice": lambda rng, disk: f"slice {_pair(rng)} {rng.choice((2, 16, 200))}B 1B {rng.choice((10, 100))}us",
    "limit": lambda rng, disk: f"limit {_pair(rng)} {rng.choice((100, 1000, 20000))}B",
    "down": lambda rng, disk: f"down {_opened(rng)}",
    "disk-slow": lambda rng, disk: f"disk-slow {_node(rng)} {rng.choice((2, 10, 50))}ms",
    "disk-full": lambda rng, disk: f"disk-full {disk}",
    "fail-sync": lambda rng, disk: f"fail-sync {disk}",
    "move": lambda rng, disk: _move(rng),
    "clock": lambda rng, disk: f"clock {_node(rng)} {rng.choice(('+1h', '-1h', '+5s', '-5s'))}",
}
WEIGHTS: Final[Mapping[str, float]] = {
    "kill": 6, "pause": 4, "stop": 2, "restart": 2, "cut": 5, "isolate": 3, "deafen": 1.5, "mute": 1.5,
    "slow": 4, "bandwidth": 1.5, "reset": 1.5, "slow-close": 1, "timeout": 1, "slice": 1, "limit": 1,
    "down": 1.5, "move": 2, "disk-slow": 1.5, "disk-full": 1, "fail-sync": 1, "clock": 1,
}  # fmt: skip
_SHORT: Final = frozenset({"disk-slow", "slice"})
"""What costs the machine more than the cluster."""
_AT_ONCE: Final = ("restart", "move")
"""What is over when it is done."""

EVERYTHING: Final = Scenario(
    name="everything",
    story="Random faults of every kind, drawn from the seed, up to three at a time.",
    schedule=draw,
    seconds=60.0,
    topics=TOPICS,
    clients=CLIENTS,
    pace=SHORT_TRANSACTIONS,
    settings={"replica.lag.time.max.ms": str(int(LAG_S * 1000)), **QUICK_TRANSACTIONS},
    expectations=(COPIED_ONCE,),
)
