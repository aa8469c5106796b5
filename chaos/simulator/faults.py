"""What is done to a simulated cluster: a list of faults from the seed, each with its beginning and its end.

    faults_of(seed's stream, profile, seconds) -> [at 3.20 for 1.50: cut 2>1, …] -> player.py

The list is made before the run begins. A run with some of them taken away is the same but for those. Some
wait for a state of the cluster (sightings.py), and strike when it is seen.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

FIRST_S: Final = 0.5
"""After the clients have begun."""
CONTROLLER: Final = "controller"
"""In place of a node: the active controller of the moment."""
LEADER: Final = "leader"
"""The leader of a partition of chance."""
SEEN: Final = "seen"
"""Where the state was seen for which the fault has waited."""

LONGEST_S: Final[Mapping[str, float]] = {
    "cut": 12.0, "partial": 25.0, "bridge": 20.0, "isolate": 12.0, "slow": 8.0, "bandwidth": 8.0,
    "refuse": 6.0, "reset": 0.0, "kill": 8.0, "successor": 8.0, "die-in": 8.0, "stop": 8.0, "pause": 14.0,
    "clock": 20.0, "disk-slow": 8.0, "disk-error": 6.0, "disk-full": 6.0, "disk-cold": 10.0,
    "bad-sector": 8.0, "dir-lost": 6.0, "power": 10.0, "power-some": 10.0, "power-all": 3.0,
}  # fmt: skip
"""How long each kind of fault lasts at most; a broker's session is 9 s."""
OF_THE_VICTIM: Final = frozenset({"disk-error", "disk-full", "bad-sector", "dir-lost", "power", "power-some"})
"""They take what was not synced, or a disk. Few nodes of a run may suffer them, and no other: `Tolerance`."""
TOGETHER: Final = "+"
"""Between nodes that lose power at once."""
DISK_OPERATIONS: Final = {
    "sync": 20, "append": 20, "read": 20, "rename": 3, "sync_dir": 3, "truncate": 1, "open": 3, "create": 3,
    "remove": 2,
}  # fmt: skip
"""Those that fail, and at most after how many of them: what is rare has to fail early, or never does."""
NEW: Final = "new"
"""A device that is lost is replaced by an empty one."""
DIRECTORIES: Final = ("2", "3", f"2 {NEW}", f"3 {NEW}")
"""Of a broker: which of them is lost. The first has the metadata."""
ALONE: Final = "alone"
SUCCESSIONS: Final = (
    "0ms", "1ms", "2ms", "5ms", "10ms", "30ms", f"30ms {ALONE}", f"100ms {ALONE}", f"300ms {ALONE}",
)  # fmt: skip
"""How long a successor lives; alone: it is cut off from all other brokers, so none has what it appends."""
WAITING: Final = frozenset({"isolate", "kill", "die-in", "stop", "pause", "power", "power-some", "dir-lost"})
"""They may wait until a state of the cluster is seen (sightings.py)."""
WAIT_S: Final = 20.0
"""Not for longer. Most of these states follow from another fault."""
AFTER_MS: Final = (0, 1, 2, 5, 10, 50)
"""When they strike, after it was seen."""
LONG_ISOLATIONS_S: Final = (10.0, 20.0)
"""Of controllers: so that one that does not resign is seen to stay."""
CODES: Final = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}


_LINE: Final = re.compile(
    r"at (?P<at>[\d.]+) for (?P<for>[\d.]+)(?: when (?P<when>[\w-]+) (?P<after>\d+)ms)?: "
    r"(?P<kind>[\w-]+)(?: (?P<target>\S+))?(?: (?P<detail>.+))?"
)


@dataclass(frozen=True, slots=True)
class SimFault:
    """One fault."""

    at_s: float
    """After the clients have begun."""
    for_s: float
    kind: str
    target: str
    """A node, a role, or `2>1`: what 2 says to 1."""
    detail: str = ""
    """How much, of what."""
    when: str = ""
    """It waits until this is seen (sightings.py): at its target, where that is a node, else anywhere."""
    after_ms: int = 0
    """It strikes so long afterwards."""

    def __str__(self) -> str:
        when = f" when {self.when} {self.after_ms}ms" if self.when else ""
        return f"at {self.at_s:g} for {self.for_s:g}{when}: {self.kind} {self.target} {self.detail}".rstrip()

    def may_strike(self, node_id: int) -> bool:
        """Where it waits for a state, whether it does when that is seen at this node."""
        return node_id in self.nodes or not self.nodes

    @property
    def nodes(self) -> list[int]:
        """Those that it names."""
        return [int(each) for each in self.target.split(TOGETHER) if each.isdecimal()]

    @property
    def over_s(self) -> float:
        """When it is over at the latest."""
        return self.at_s + self.for_s + (WAIT_S if self.when else 0.0)

    @staticmethod
    def parse(line: str) -> SimFault:
        """Of its text form. Raises ValueError."""
        found = _LINE.fullmatch(line.strip())
        if found is None or found["kind"] not in LONGEST_S:
            raise ValueError(f"no fault: {line!r}")
        target, detail = found["target"] or "", found["detail"] or ""
        when, after_ms = found["when"] or "", int(found["after"] or 0)
        return SimFault(
            float(found["at"]), float(found["for"]), found["kind"], target, detail, when, after_ms
        )


@dataclass(frozen=True, slots=True)
class Severity:
    """Which faults, and how many."""

    kinds: Mapping[str, float]
    """How likely each kind is, against the others."""
    per_s: float = 0.35
    """How many begin each second."""
    waiting: float = 0.5
    """The share of those of a kind that may wait for a state of the cluster which do."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Who may lose what it did not sync, or its disk, without a loss of anything that was promised."""

    victims: int = 1
    """So many nodes, the same ones all along: what is promised holds as long as another copy does."""
    synced: tuple[int, ...] = ()
    """Nodes that sync all that they promise: any of them may lose power."""


GENTLE: Final = Severity(
    {
        "cut": 4, "isolate": 3, "slow": 2, "refuse": 1, "reset": 2, "kill": 4, "die-in": 4, "stop": 1.5,
        "pause": 2, "clock": 0.5, "disk-slow": 1, "disk-cold": 2,
    }
)  # fmt: skip
"""Nothing that takes what was written."""
PARTIAL: Final = Severity({"partial": 5, "bridge": 3, "kill": 1, "stop": 1, "pause": 0.5})
"""Who cannot talk to whom is not the same for all: nobody is away for everybody."""
STRANDING: Final = Severity(
    {"isolate": 5, "partial": 2, "slow": 3, "kill": 2, "successor": 5, "die-in": 2, "pause": 2}, per_s=0.5
)
"""Leaders that clients still reach and followers do not: what they append is truncated. Leaders that die as
soon as they are elected, before their followers have what they lack."""
RARE: Final = Severity(GENTLE.kinds, per_s=0.1)
HARSH: Final = Severity(
    {**GENTLE.kinds, "power": 3, "power-some": 2, "disk-error": 2, "disk-full": 1, "bad-sector": 1}
)
DISKS: Final = Severity(
    {**GENTLE.kinds, "dir-lost": 8, "disk-error": 3, "disk-full": 1, "power": 1, "bad-sector": 1}
)
"""For brokers with several log directories: they lose one of them, and go on with the others."""
BLACKOUTS: Final = Severity({**GENTLE.kinds, "power": 3, "power-some": 3, "power-all": 3})
"""Only for clusters that flush what they acknowledge."""


def faults_of(
    random: Random,
    severity: Severity,
    nodes: Sequence[int],
    clients: Sequence[str],
    seconds: float,
    *,
    states: Mapping[str, float] = {},
    tolerance: Tolerance = Tolerance(),
) -> list[SimFault]:
    """The seed's own, in the order in which they begin. `states`: what some of them wait for, and how likely
    each is."""
    victims = random.sample(nodes, tolerance.victims)
    powerless = sorted({*victims, *tolerance.synced})
    made: list[SimFault] = []
    at_s = FIRST_S + random.expovariate(severity.per_s)
    while at_s < seconds:
        (kind,) = random.choices(list(severity.kinds), list(severity.kinds.values()))
        for_s = min(random.expovariate(3 / LONGEST_S[kind]) if LONGEST_S[kind] else 0.0, LONGEST_S[kind])
        fault = _fault(random, at_s, for_s, kind, victims, nodes, clients)
        if kind == "power-some":
            some = random.sample(powerless, random.randint(min(2, len(powerless)), len(powerless)))
            fault = replace(fault, target=TOGETHER.join(map(str, sorted(some))))
        elif kind == "power":
            fault = replace(fault, target=str(random.choice(powerless)))
        if kind in WAITING and states and random.random() < severity.waiting:
            fault = _waiting(random, fault, states)
        made.append(fault)
        at_s += random.expovariate(severity.per_s)
    return made


def _fault(
    random: Random,
    at_s: float,
    for_s: float,
    kind: str,
    victims: Sequence[int],
    nodes: Sequence[int],
    clients: Sequence[str],
) -> SimFault:
    node = str(random.choice(nodes)) if random.random() < 0.5 else random.choice((CONTROLLER, LEADER))
    detail = ""
    if kind == "power-all":
        node = ""
    if kind in OF_THE_VICTIM:
        node = str(random.choice(victims))
    if kind in ("cut", "partial", "slow", "reset"):
        ends = [*map(str, nodes), *(random.choice(clients) for _ in range(1 if random.random() < 0.3 else 0))]
        if len(ends) > 1:
            node = ">".join(random.sample(ends, 2))
    if kind == "isolate" and random.random() < 0.5:
        node, for_s = CONTROLLER, random.uniform(*LONG_ISOLATIONS_S)
    if kind == "slow":
        detail = f"{random.choice((5, 50, 300, 1000, 3000))}ms"
    elif kind == "clock":
        detail = f"{random.choice((-3600, -60, -5, 5, 60, 3600))}s"
    elif kind == "disk-slow":
        detail = f"{random.choice((2, 10, 50, 200))}ms"
    elif kind == "successor":
        detail = random.choice(SUCCESSIONS)
    elif kind == "disk-cold":
        detail = f"{random.choice((10, 50, 100))}%"
    elif kind == "die-in":
        detail = str(random.randrange(40))
    elif kind == "disk-error":
        operation = random.choice(list(DISK_OPERATIONS))
        after = random.randrange(DISK_OPERATIONS[operation])
        detail = f"{operation} EIO {after} {random.choice((1, 1, 3))}"
    elif kind == "dir-lost":
        detail = random.choice(DIRECTORIES)
    elif kind == "disk-full":
        detail = f"append ENOSPC {random.randrange(20)} {random.choice((1, 5, 50))}"
    return SimFault(round(at_s, 3), round(for_s, 3), kind, node, detail)


def _waiting(random: Random, fault: SimFault, states: Mapping[str, float]) -> SimFault:
    """Where the state is seen, mostly; a victim's fault when it is seen at the victim."""
    target = fault.target
    if fault.kind not in OF_THE_VICTIM:
        target = random.choice((SEEN, SEEN, SEEN, CONTROLLER, LEADER))
    (when,) = random.choices(list(states), list(states.values()))
    return replace(fault, target=target, when=when, after_ms=random.choice(AFTER_MS))
