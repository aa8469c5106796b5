"""Everything that can be done to a cluster, as data with one text form: `kill 2`, `cut 2>1`, `clock 3 -1h`.

    text --parse--> Fault --begin--> something is wrong --end--> it no longer is

Faults of links are described in live/link_faults.py (`cut`, `slow`, `bandwidth`, …); `isolate`, `deafen`,
`mute` and `partition` are several cuts at once. The faults of a node are the table `NODE_FAULTS` below.
Nodes are meant by their ids here; roles were filled in before (roles.py).
"""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

import psutil

from chaos.live.cluster import ChaosCluster
from chaos.live.damage import flip_bit, tear_tail
from chaos.live.link_faults import KINDS, BadFault, End, LinkFault
from chaos.moves import ReassignmentRequest
from data_plane.log.files import LOG
from kraft.local.free_ports import HOST
from kraft.peers.blocking_client import out_of_sync
from metadata_quorum.foundation.batch import iter_headers
from metadata_quorum.foundation.errors import FatalError

STOP_PATIENCE_S: Final = 10.0
"""A node that has not stopped by then is killed: its links may be broken too."""
ROLL_PATIENCE_S: Final = 60.0
LOOK_EVERY_S: Final = 0.05
HOLD_MS: Final = 30_000
HOUR_MS: Final = 3_600_000


class FaultSkipped(Exception):
    """A fault found nothing to act on (the node to be paused is down); the sentence says so."""


@dataclass(slots=True)
class FaultContext:
    """What faults act on: the cluster, and which faults of links are on it now."""

    cluster: ChaosCluster
    rng: random.Random
    """For damage to files: where exactly."""
    links: list[LinkFault]

    @classmethod
    def of(cls, cluster: ChaosCluster, rng: random.Random) -> FaultContext:
        return cls(cluster, rng, [])

    def is_down(self, node: int) -> bool:
        return self.cluster.local.node(node).process() is None

    def is_paused(self, node: int) -> bool:
        process = self.cluster.local.node(node).process()
        try:
            return process is not None and process.status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False

    def refuse_unless_up(self, node: int) -> None:
        """Raises FaultSkipped."""
        if self.is_down(node):
            raise FaultSkipped(f"node {node} is down")
        if self.is_paused(node):
            raise FaultSkipped(f"node {node} is paused")


@dataclass(frozen=True, slots=True)
class NodeFault:
    """One row of the table, on one node. `value`: in the row's own unit; `key`: of damage to a partition."""

    kind: str
    node: int
    value: int = 0
    key: str = ""

    def begin(self, context: FaultContext) -> str | None:
        """What is worth a remark. Raises FaultSkipped."""
        return NODE_FAULTS[self.kind].begin(context, self)

    def end(self, context: FaultContext) -> None:
        end = NODE_FAULTS[self.kind].end
        if end is not None:
            end(context, self)

    @property
    def lasts(self) -> bool:
        return NODE_FAULTS[self.kind].end is not None

    def __str__(self) -> str:
        shown = NODE_FAULTS[self.kind].argument
        argument = {
            "": "",
            "ms": f" {self.value}ms",
            "shift": f" {_shift_text(self.value)}",
            "key": f" {self.key}",
        }
        return f"{self.kind} {self.node}{argument[shown]}"


@dataclass(frozen=True, slots=True)
class LinksFault:
    """Faults of links that begin and end together, under one name."""

    text: str
    parts: tuple[LinkFault, ...]

    lasts = True

    def begin(self, context: FaultContext) -> str | None:
        context.links += self.parts
        for part in self.parts:
            context.cluster.links.apply(part)
        return None

    def end(self, context: FaultContext) -> None:
        for part in self.parts:
            context.links.remove(part)
        wrong = {(each.kind, each.source, each.target): each for each in _one_way(context.links)}
        for part in _one_way(self.parts):
            still = wrong.get((part.kind, part.source, part.target))
            if still is None:
                context.cluster.links.remove(part)
            else:  # another fault of that kind overlaps this one
                context.cluster.links.apply(still)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class MoveFault:
    """A partition is reassigned; the cluster carries it out by itself then."""

    move: ReassignmentRequest

    lasts = False

    def begin(self, context: FaultContext) -> str | None:
        """Raises FaultSkipped where the cluster refuses it."""
        refusal = self.move.ask(context.cluster)
        if refusal is not None:
            raise FaultSkipped(refusal)
        return None

    def end(self, context: FaultContext) -> None:
        pass

    def __str__(self) -> str:
        return str(self.move)


Fault = NodeFault | LinksFault | MoveFault


def parse(text: str, nodes: Sequence[int], clients: int) -> Fault:
    """A fault by its text, with ids for roles, on a cluster of these nodes. Raises BadFault."""
    kind, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if kind in CUTS_OF_A_NODE:
        return _cuts_of_a_node(kind, rest, nodes, clients)
    if kind == "partition":
        return LinksFault(text, _cuts([_ends(group) for group in rest.split("|")]))
    if kind == "move":
        return MoveFault(ReassignmentRequest.parse(rest, nodes))
    if kind in KINDS:
        part = LinkFault.parse(text)
        return LinksFault(str(part), (part,))
    if kind not in NODE_FAULTS:
        known = ", ".join((*NODE_FAULTS, *CUTS_OF_A_NODE, "partition", "move", *KINDS))
        raise BadFault(f"{kind}: no fault; there are {known}")
    return _node_fault(kind, rest, nodes)


def wake_all(context: FaultContext) -> None:
    """First of all: a paused process reads nothing, and obeys nothing."""
    for node in context.cluster.nodes:
        if context.is_paused(node):
            context.cluster.resume(node)


def heal_links(context: FaultContext) -> None:
    """Nothing is wrong with any link."""
    context.links.clear()
    context.cluster.links.heal_all()


def heal_nodes(context: FaultContext) -> None:
    """Nothing is wrong around any node, and all run."""
    for node in context.cluster.nodes:
        context.cluster.disk(node).heal()
        context.cluster.clock(node).shift(0)
        if context.is_down(node):
            context.cluster.start_node(node, wait=False)


# Links ------------------------------------------------------------------------------------------------------


CUTS_OF_A_NODE: Final[Mapping[str, Callable[[int, End], LinkFault]]] = {
    "isolate": lambda node, other: LinkFault("cut", node, other, both=True),
    "deafen": lambda node, other: LinkFault("cut", other, node),
    "mute": lambda node, other: LinkFault("cut", node, other),
}
"""Of a node from all others, in both directions."""


def _cuts_of_a_node(kind: str, text: str, nodes: Sequence[int], clients: int) -> LinksFault:
    """`isolate 2`: from the other nodes; `isolate 2 from all`: from the clients too."""
    match = re.fullmatch(r"(\d+)( from all)?", text)
    if match is None or int(match[1]) not in nodes:
        raise BadFault(f"{kind} {text}: say `{kind} NODE` or `{kind} NODE from all`")
    node = int(match[1])
    others: list[End] = [other for other in nodes if other != node]
    if match[2]:
        others += [f"c{client}" for client in range(clients)]
    return LinksFault(f"{kind} {text}", tuple(CUTS_OF_A_NODE[kind](node, other) for other in others))


def _cuts(groups: Sequence[Sequence[End]]) -> tuple[LinkFault, ...]:
    return tuple(
        LinkFault("cut", a, b, both=True)
        for here, there in combinations(groups, 2)
        for a, b in product(here, there)
        if isinstance(a, int) or isinstance(b, int)
    )


def _ends(text: str) -> list[End]:
    ends: list[End] = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*(c?)(\d+)\s*", word)
        if match is None:
            raise BadFault(f"partition {text}: groups of nodes are separated by |, as in `partition 1|2,3`")
        ends.append(f"c{match[2]}" if match[1] else int(match[2]))
    return ends


def _one_way(faults: Iterable[LinkFault]) -> list[LinkFault]:
    return [way for fault in faults for way in fault.one_way()]


# Nodes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One kind of fault of a node. `argument`: "", "ms", "shift" (a signed time) or "key" (a partition)."""

    what: str
    begin: Callable[[FaultContext, NodeFault], str | None]
    end: Callable[[FaultContext, NodeFault], None] | None = None
    argument: str = ""


def _kill(context: FaultContext, fault: NodeFault) -> None:
    if context.is_down(fault.node):
        raise FaultSkipped(f"node {fault.node} is down")
    context.cluster.kill(fault.node)


def _stop(context: FaultContext, fault: NodeFault) -> None:
    context.refuse_unless_up(fault.node)
    try:
        context.cluster.local.stop(fault.node, STOP_PATIENCE_S)
    except FatalError:
        context.cluster.kill(fault.node)


def _start(context: FaultContext, fault: NodeFault) -> None:
    if context.is_down(fault.node):
        context.cluster.start_node(fault.node, wait=False)


def _restart(context: FaultContext, fault: NodeFault) -> None:
    _stop(context, fault)
    _start(context, fault)


def _roll(context: FaultContext, fault: NodeFault) -> None:
    """Starts with `fault.node` and wraps around."""
    nodes = sorted(context.cluster.nodes)
    place = nodes.index(fault.node)
    for node in nodes[place:] + nodes[:place]:
        context.cluster.restart(node)
        deadline = time.monotonic() + ROLL_PATIENCE_S
        while out_of_sync(HOST, context.cluster.local.node(node).client_port):
            if time.monotonic() > deadline:
                raise FaultSkipped(f"not every ISR is full {ROLL_PATIENCE_S:g} s after node {node} came back")
            time.sleep(LOOK_EVERY_S)


def _pause(context: FaultContext, fault: NodeFault) -> None:
    context.refuse_unless_up(fault.node)
    context.cluster.pause(fault.node)


def _resume(context: FaultContext, fault: NodeFault) -> None:
    if context.is_paused(fault.node):
        context.cluster.resume(fault.node)


def _disk(switch: str) -> Callable[[FaultContext, NodeFault], None]:
    def begin(context: FaultContext, fault: NodeFault) -> None:
        context.refuse_unless_up(fault.node)
        disk = context.cluster.disk(fault.node)
        match switch:
            case "full":
                disk.full()
            case "error":
                disk.error()
            case "slow":
                disk.slow(fault.value)
            case _:
                disk.fail_sync()

    return begin


def _heal_disk(context: FaultContext, fault: NodeFault) -> None:
    """A node that its disk has brought down starts again."""
    if context.is_paused(fault.node):
        context.cluster.resume(fault.node)
    context.cluster.disk(fault.node).heal()
    _start(context, fault)


def _replace_disk(context: FaultContext, fault: NodeFault) -> None:
    """A node whose disk failed is not trusted again: it is restarted, on a disk that works."""
    if not context.is_down(fault.node):
        context.cluster.kill(fault.node)
    _heal_disk(context, fault)


def _tear(context: FaultContext, fault: NodeFault) -> str:
    _kill(context, fault)
    try:
        return str(tear_tail(context.cluster.home(fault.node) / "data" / fault.key, context.rng))
    except ValueError as error:
        return f"only killed: {error}"


def _flip(context: FaultContext, fault: NodeFault) -> str:
    """In a batch in the middle of the partition, behind which good data lies."""
    _kill(context, fault)
    partition = context.cluster.home(fault.node) / "data" / fault.key
    headers = [
        header for log in sorted(partition.glob(f"*{LOG}")) for _, header in iter_headers(log.read_bytes())
    ]
    if len(headers) < 3:
        raise FaultSkipped(f"{fault.key} on node {fault.node} has {len(headers)} batches: there is no middle")
    return str(flip_bit(partition, headers[len(headers) // 2].base_offset, context.rng))


def _wipe(context: FaultContext, fault: NodeFault) -> None:
    if not context.is_down(fault.node):
        context.cluster.kill(fault.node)
    shutil.rmtree(context.cluster.home(fault.node) / "data" / fault.key)
    _start(context, fault)


def _hold_reads(context: FaultContext, fault: NodeFault) -> None:
    context.refuse_unless_up(fault.node)
    context.cluster.disk(fault.node).slow(HOLD_MS, f"data/{fault.key}", writes=False)


def _shift_clock(context: FaultContext, fault: NodeFault) -> None:
    context.refuse_unless_up(fault.node)
    context.cluster.clock(fault.node).shift(fault.value)


def _set_clock(context: FaultContext, fault: NodeFault) -> None:
    if context.is_paused(fault.node):
        context.cluster.resume(fault.node)
    context.cluster.clock(fault.node).shift(0)


NODE_FAULTS: Final[Mapping[str, FaultRow]] = {
    "kill": FaultRow("SIGKILL; then started again", _kill, _start),
    "stop": FaultRow("SIGTERM: hands its leaders over, ends; then started again", _stop, _start),
    "pause": FaultRow("SIGSTOP: silent, connections stay open; then SIGCONT", _pause, _resume),
    "start": FaultRow("where it does not run", _start),
    "await": FaultRow("nothing; a role in its text is waited for", lambda context, fault: None),
    "restart": FaultRow("stopped in order, and started at once", _restart),
    "rolling": FaultRow("all nodes restarted in turn from this one on, each when every ISR is full", _roll),
    "disk-full": FaultRow("no file can grow", _disk("full"), _replace_disk),
    "disk-error": FaultRow("reads and writes fail", _disk("error"), _replace_disk),
    "disk-slow": FaultRow("every operation takes that much longer", _disk("slow"), _heal_disk, "ms"),
    "fail-sync": FaultRow("every fsync fails", _disk("sync"), _replace_disk),
    "tear": FaultRow("killed, the tail of a partition's log torn; then started again", _tear, _start, "key"),
    "flip": FaultRow("killed, a bit in a partition's log flipped; then started again", _flip, _start, "key"),
    "wipe": FaultRow("killed, what it holds of a partition removed, and started at once", _wipe, None, "key"),
    "hold-reads": FaultRow("what is read of a partition comes very late", _hold_reads, _heal_disk, "key"),
    "clock": FaultRow("the wall clock is set that far ahead, or behind", _shift_clock, _set_clock, "shift"),
}


def _node_fault(kind: str, text: str, nodes: Sequence[int]) -> NodeFault:
    row = NODE_FAULTS[kind]
    words = text.split()
    if len(words) != 1 + bool(row.argument) or not words[0].isdecimal() or int(words[0]) not in nodes:
        argument = {"": "", "ms": " MSms", "shift": " +1h", "key": " TOPIC-N"}[row.argument]
        known = ", ".join(map(str, nodes))
        raise BadFault(f"{kind} {text}: say `{kind} NODE{argument}`; the nodes are {known}")
    node = int(words[0])
    match row.argument:
        case "ms":
            return NodeFault(kind, node, value=_signed_ms(words[1]))
        case "shift":
            return NodeFault(kind, node, value=_signed_ms(words[1]))
        case "key":
            return NodeFault(kind, node, key=words[1])
    return NodeFault(kind, node)


def _signed_ms(text: str) -> int:
    match = re.fullmatch(r"([+-]?)(\d+)(ms|s|m|h)", text)
    if match is None:
        raise BadFault(f"{text}: a time is a number of ms, s, m or h")
    size = int(match[2]) * {"ms": 1, "s": 1000, "m": 60_000, "h": HOUR_MS}[match[3]]
    return -size if match[1] == "-" else size


def _shift_text(ms: int) -> str:
    units = {"h": HOUR_MS, "m": 60_000, "s": 1000, "ms": 1}
    unit = next(unit for unit, size in units.items() if ms % size == 0)
    return f"{ms // units[unit]:+d}{unit}"
