"""A simulated cluster as a stage (chaos/play.py): the lab's faults, done by the simulator's means.

    Fault -> simulated_faults -> SimFaults -> FaultPlayer.begin -> how each is lifted

Not every fault has a simulated counterpart: `simulated_faults` refuses the others, before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from chaos.faults import Fault, FaultSkipped, LinksFault, NodeFault
from chaos.live.link_faults import BadFault, End, LinkFault
from chaos.simulator.cluster import Cluster, host_of
from chaos.simulator.damage import flip_bit, remove
from chaos.simulator.faults import SimFault
from chaos.simulator.oracles.recovery import under_replicated
from chaos.simulator.player import FaultPlayer, Lift, NothingToDo
from metadata_quorum.foundation.errors import FatalError

FOR_GOOD: Final = 1_000_000
"""A disk that fails so many operations in a row does not recover."""
STOP_PATIENCE_S: Final = 10.0
ROLL_PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.05

_BY_THE_STAGE: Final = frozenset({"start", "await", "restart", "rolling", "flip", "wipe"})
"""They are no faults of the simulator, but what an operator does, or somebody at the files of a node that is
down."""
_OF_DISKS: Final[Mapping[str, Sequence[str]]] = {
    "disk-full": (f"append ENOSPC 0 {FOR_GOOD}",),
    "fail-sync": (f"sync EIO 0 {FOR_GOOD}",),
    "disk-error": tuple(f"{operation} EIO 0 {FOR_GOOD}" for operation in ("read", "append", "write_at")),
}
_AS_IT_IS: Final = frozenset({"kill", "stop", "pause"})


def simulated_faults(fault: Fault, clients: Sequence[str]) -> list[SimFault]:
    """What the simulator does for it. `clients`: the hosts of c0, c1, … Raises BadFault."""
    match fault:
        case LinksFault(parts=parts):
            return [_of_link(way, clients) for part in parts for way in part.one_way()]
        case NodeFault(kind=kind, node=node) if kind in _AS_IT_IS:
            return [_sim(kind, str(node))]
        case NodeFault(kind="clock", node=node, value=ms):
            return [_sim("clock", str(node), f"{ms // 1000}s")]
        case NodeFault(kind="disk-slow", node=node, value=ms):
            return [_sim("disk-slow", str(node), f"{ms}ms")]
        case NodeFault(kind=kind, node=node) if kind in _OF_DISKS:
            sim_kind = "disk-full" if kind == "disk-full" else "disk-error"
            return [_sim(sim_kind, str(node), detail) for detail in _OF_DISKS[kind]]
        case NodeFault(kind=kind) if kind in _BY_THE_STAGE:
            return []
    raise BadFault(f"{fault}: the simulator cannot do that")


def _of_link(way: LinkFault, clients: Sequence[str]) -> SimFault:
    link = f"{_host(way.source, clients)}>{_host(way.target, clients)}"
    if way.kind == "slow":
        return _sim("slow", link, f"{sum(way.args)}ms")  # at most; it draws from half of that on
    if way.kind == "bandwidth":
        return _sim(way.kind, link, f"{way.args[0]}KB/s")
    if way.kind not in ("cut", "reset"):
        raise BadFault(f"{way}: the simulator cannot do that")
    return _sim(way.kind, link)


def _host(end: End, clients: Sequence[str]) -> str:
    return str(end) if isinstance(end, int) else clients[int(end.removeprefix("c")) % len(clients)]


def _sim(kind: str, target: str, detail: str = "") -> SimFault:
    """When, and for how long, is the player's."""
    return SimFault(0.0, 0.0, kind, target, detail)


def _directory(fault: NodeFault) -> str:
    """Of the partition that it damages."""
    return f"/{host_of(fault.node)}/data/{fault.key}"


class SimulatedStage:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        faults: FaultPlayer,
        clients: Sequence[str],
        sleep: Callable[[float], None],
    ) -> None:
        """`clients`: the hosts of c0, c1, …; `sleep` lets the simulation go on."""
        self._cluster = cluster
        self._faults = faults
        self._clients = clients
        self._sleep = sleep
        self._lifts: dict[Fault, list[Lift]] = {}
        self._fallen: list[str] = []
        self._stage_does: Mapping[str, Callable[[int], None]] = {
            "start": self._start, "await": lambda node: None, "restart": self._restart, "rolling": self._roll,
        }  # fmt: skip
        cluster.on_end.append(self._ended)

    @property
    def nodes(self) -> Sequence[int]:
        return self._cluster.shape.nodes

    @property
    def clients(self) -> int:
        return len(self._clients)

    def is_down(self, node: int) -> bool:
        return not self._cluster.machines[node].is_up

    def begin(self, fault: Fault) -> str | None:
        """Raises FaultSkipped."""
        if isinstance(fault, NodeFault) and fault.kind in self._stage_does:
            self._stage_does[fault.kind](fault.node)
            return None
        if isinstance(fault, NodeFault) and fault.kind == "wipe":
            self._wipe(fault)
            return None
        if isinstance(fault, NodeFault) and fault.kind == "flip":
            return self._flip(fault)
        if isinstance(fault, NodeFault) and fault.kind != "kill":
            self._refuse_unless_up(fault.node)
        lifts = self._lifts.setdefault(fault, [])
        try:
            for each in simulated_faults(fault, self._clients):
                lift = self._faults.begin(each)
                lifts += [] if lift is None else [lift]
        except NothingToDo as why:
            self.end(fault)
            raise FaultSkipped(str(why)) from None
        if isinstance(fault, NodeFault) and fault.kind in _OF_DISKS:
            lifts.append(partial(self._replace_disk, fault.node))
        return None

    def end(self, fault: Fault) -> None:
        for lift in self._lifts.pop(fault, ()):
            lift()

    def heal(self) -> None:
        for fault in list(self._lifts):
            self.end(fault)
        self._faults.heal()

    def fallen(self) -> Iterator[str]:
        fallen, self._fallen = self._fallen, []
        yield from fallen

    def _ended(self, node: int, error: BaseException, why: str) -> None:
        code = error.exit_code if isinstance(error, FatalError) else 1
        self._fallen.append(f"node {node}, with code {int(code)}")

    # ---- what an operator does

    def _start(self, node: int) -> None:
        if self.is_down(node):
            self._faults.start(node)

    def _restart(self, node: int) -> None:
        """SIGTERM, then again at once; what does not end in time is killed. Raises FaultSkipped."""
        self._refuse_unless_up(node)
        self._cluster.stop(node)
        if not self._wait_for(lambda: self.is_down(node), STOP_PATIENCE_S):
            self._cluster.machines[node].kill("it does not stop")
        self._start(node)

    def _roll(self, node: int) -> None:
        """Starts with that node and wraps around. Raises FaultSkipped."""
        nodes = sorted(self.nodes)
        index = nodes.index(node)
        for each in nodes[index:] + nodes[:index]:
            self._restart(each)
            if not self._wait_for(partial(self._is_full, each), ROLL_PATIENCE_S):
                raise FaultSkipped(f"not every ISR is full {ROLL_PATIENCE_S:g} s after node {each} came back")

    def _is_full(self, node: int) -> bool:
        running = self._cluster.running.get(node)
        if running is None or not running.is_ready:
            return False
        return not any(under_replicated(running.node.context.metadata_cache.image))

    def _replace_disk(self, node: int) -> None:
        """A node whose disk failed is not trusted again: it is restarted, on a disk that works."""
        machine = self._cluster.machines[node]
        if machine.is_up:
            machine.kill("its disk is replaced")
        machine.disk.heal()
        self._faults.start(node)

    def _flip(self, fault: NodeFault) -> str:
        """While it is down. Raises FaultSkipped."""
        self._refuse_unless_up(fault.node)
        lift = self._faults.begin(_sim("kill", str(fault.node)))
        self._lifts[fault] = [] if lift is None else [lift]
        chance = self._cluster.draws.fresh(f"bit of {fault}")
        try:
            return flip_bit(self._cluster.machines[fault.node].disk, _directory(fault), chance)
        except ValueError as why:
            self.end(fault)
            raise FaultSkipped(str(why)) from None

    def _wipe(self, fault: NodeFault) -> None:
        machine = self._cluster.machines[fault.node]
        machine.kill("its files are removed")
        remove(machine.disk, _directory(fault))
        self._faults.start(fault.node)

    def _refuse_unless_up(self, node: int) -> None:
        """Raises FaultSkipped."""
        process = self._cluster.machines[node].process
        if process is None:
            raise FaultSkipped(f"node {node} is down")
        if process.held:
            raise FaultSkipped(f"node {node} is paused")

    def _wait_for(self, reached: Callable[[], bool], patience_s: float) -> bool:
        until = self._cluster.scheduler.now + patience_s
        while not reached() and self._cluster.scheduler.now < until:
            self._sleep(LOOK_S)
        return reached()
