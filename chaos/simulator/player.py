"""Plays a list of faults against a simulated cluster, and lifts them.

    FaultPlayer.play -> each fault begins and ends when it is due … heal: all are lifted, all nodes run

A role (`controller`, `leader`) is filled with a node when its fault begins. Faults of one kind may overlap:
a link is whole again, and a node up, when the last of them is lifted. A fault that finds nothing to do (its
node is down already, nobody has the role) says so, and does not count as visited. So does one that waits for
a state of the cluster (sightings.py) which is not seen in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final, Literal

from chaos.simulator.cluster import BROKER_PORT, CONTROLLER_PORT, WORLD, Cluster, host_of
from chaos.simulator.draws import Draws
from chaos.simulator.faults import ALONE, CODES, CONTROLLER, LEADER, NEW, SEEN, WAIT_S, SimFault
from chaos.simulator.machine import MachineDisk
from chaos.simulator.network import OneWay
from chaos.simulator.process_loop import ProcessLoop
from chaos.simulator.sightings import SIGHTINGS
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.foundation.model import NO_LEADER

LOOK_S: Final = 0.5
"""A node that ended by itself is started again within this time, and some more."""
SUCCESSION_S: Final = 5.0
"""An election takes no longer, or nobody waits for it."""
SOON_S: Final = 0.001
STOP_S: Final = 5.0
"""An operator who replaces a disk waits no longer for a broker that is to stop."""
GLANCE_S: Final = 0.002
"""It is looked so often at most whether a state is there for which a fault waits."""
RESTART_S: Final = (0.5, 3.0)
NO_NODE: Final = -1

Lift = Callable[[], None]


Noted = Callable[[Literal["begin", "end", "point"], SimFault, str], None]
"""Told of each fault that begins, ends, or is over at once; why, where it found nothing to do."""


class NothingToDo(Exception):
    """The fault finds nothing that it could hurt; why."""


@dataclass(slots=True)
class Succession:
    """A leader that has died, and the one that is elected in its place."""

    led: Sequence[str]
    """The partitions of the dead one."""
    before: int
    until_s: float
    """Nobody waits for it any longer."""
    lives_s: float
    """How long the successor lives."""
    is_alone: bool
    lifts: list[Lift]
    is_lifted: bool = False

    def lift(self) -> None:
        self.is_lifted = True
        for lift in self.lifts:
            lift()


class FaultPlayer:
    """See the module."""

    def __init__(self, cluster: Cluster, faults: Sequence[SimFault], draws: Draws) -> None:
        self.faults = faults
        self._cluster = cluster
        self._draws = draws
        self._scheduler = cluster.scheduler
        self.noted: Noted = lambda kind, fault, why: None
        self.victims: dict[SimFault, int] = {}
        """The node that each which has begun has struck."""
        self._lifts: dict[int, Lift] = {}
        """Of those that last, by their index in the list."""
        self._down: Counter[int] = Counter()
        """Nodes that stay down, and by how many they are kept so."""
        self.restarting = 0
        """How many brokers are being stopped, to be started again."""
        self.is_over = False
        """Everything is healed."""
        self._waiting: dict[int, float] = {}
        """Faults that wait for a state, by their index, and until when."""
        self._begin: Mapping[str, Callable[[SimFault, int], Lift | None]] = {
            "isolate": self._isolate, "bridge": self._bridge, "refuse": self._refuse,
            "kill": self._kill, "successor": self._successor, "die-in": self._die_in, "stop": self._stop,
            "pause": self._pause, "clock": self._clock, "disk-slow": self._slow_disk,
            "disk-error": self._fail_disk, "disk-full": self._fail_disk,
            "disk-cold": self._cool_disk, "bad-sector": self._spoil_disk, "dir-lost": self._lose_directory,
            "power": self._power,
        }  # fmt: skip
        self._links: Mapping[str, Callable[[SimFault, str, str], Lift | None]] = {
            "cut": self._cut, "partial": self._partial, "slow": self._slow, "reset": self._reset,
            "bandwidth": self._narrow,
        }  # fmt: skip

    def play(self) -> None:
        """From now on."""
        began = self._scheduler.now
        for index, fault in enumerate(self.faults):
            if fault.when:
                self._scheduler.at(began + fault.at_s, self._wait, index)
            else:
                self._scheduler.at(began + fault.at_s, self._start, index)
        self._scheduler.at(began + LOOK_S, self._keep_up)

    def heal(self) -> None:
        """Lift everything; every node runs."""
        self.is_over = True
        for index in list(self._lifts):
            self._lift(index)
        self._down.clear()
        for node_id, machine in self._cluster.machines.items():
            if machine.disk.struck and len(self._cluster.shape.log_dirs_of(node_id)) > 1:
                self._restart(node_id, lambda: None)  # a directory that has failed stays so until then
            machine.disk.heal()
            self._cluster.start(node_id)
        self._tell("everything is healed")

    def start(self, node_id: int) -> None:
        """Whatever keeps it down."""
        self._down[node_id] = 0
        self._cluster.start(node_id)

    def _tell(self, what: str) -> None:
        self._cluster.story.tell(self._scheduler.now, WORLD, " ".join(what.split()))

    def _wait(self, index: int) -> None:
        """From now on, until the state is seen for which the fault waits."""
        self._waiting[index] = self._scheduler.now + WAIT_S
        if len(self._waiting) == 1:
            self._glance()

    def _glance(self) -> None:
        """Look for the faults that wait, and again when something may have happened."""
        if self.is_over:
            return
        now = self._scheduler.now
        for index, until_s in list(self._waiting.items()):
            fault = self.faults[index]
            node_id = next(filter(fault.may_strike, SIGHTINGS[fault.when](self._cluster)), None)
            if node_id is not None:
                self._cluster.story.visit(f"seen {fault.when}")
                self._tell(f"{fault.when} is seen at {node_id}")
                self._scheduler.at(now + fault.after_ms / 1000, self._start, index, node_id)
            elif now < until_s:
                continue
            else:
                self._is_idle(fault, f"{fault.when} is not seen")
            del self._waiting[index]
        if self._waiting:
            self._scheduler.at(max(now + GLANCE_S, self._scheduler.next_due), self._glance)

    def _is_idle(self, fault: SimFault, why: str) -> None:
        self._tell(f"{fault.kind} {fault.target}: nothing to do, {why}")
        self.noted("point", fault, why)

    def _start(self, index: int, seen_at: int = NO_NODE) -> None:
        """`seen_at`: the node at which that was seen for which it has waited."""
        if self.is_over:
            return
        fault = self.faults[index]
        try:
            lift = self.begin(fault, seen_at)
        except NothingToDo as why:
            self._is_idle(fault, str(why))
            return
        self._cluster.story.visit(f"fault {fault.kind}")
        self.noted("point" if lift is None else "begin", fault, "")
        if lift is not None:
            self._lifts[index] = lift
            self._scheduler.at(self._scheduler.now + fault.for_s, self._lift, index)

    def begin(self, fault: SimFault, seen_at: int = NO_NODE) -> Lift | None:
        """How it is lifted; None where it is over when it is done. Raises `NothingToDo`."""
        lasting = f"for {fault.for_s:g} s" if fault.for_s else ""
        if fault.kind in ("power-all", "power-some"):
            self._tell(f"{fault.kind} {fault.target} {lasting}")
            return self._power_off(fault.nodes or list(self._cluster.machines))
        if fault.kind in self._links:
            source, _, target = fault.target.partition(">")
            self._tell(f"{fault.kind} {fault.target} {fault.detail} {lasting}")
            return self._links[fault.kind](fault, _end(source), _end(target))
        node_id = self.victims[fault] = seen_at if fault.target == SEEN else self._node(fault)
        self._tell(f"{fault.kind} {fault.target} ({node_id}) {fault.detail} {lasting}")
        return self._begin[fault.kind](fault, node_id)

    def _lift(self, index: int) -> None:
        lift = self._lifts.pop(index, None)
        if lift is not None:
            fault = self.faults[index]
            self._tell(f"{fault.kind} {fault.target} is lifted")
            self.noted("end", fault, "")
            lift()

    def _node(self, fault: SimFault) -> int:
        """Who that is now. Raises `NothingToDo`."""
        if fault.target not in (CONTROLLER, LEADER):
            return int(fault.target)
        running = self._cluster.leader
        if running is None:
            raise NothingToDo("nobody is the controller")
        if fault.target == CONTROLLER:
            return running.node.config.node_id
        leaders = list(self.leaders().values())
        if not leaders:
            raise NothingToDo("nothing has a leader")
        return self._draws.fresh(f"role in {fault}").choice(leaders)

    def leaders(self) -> Mapping[str, int]:
        """Of each partition that has one, as the active controller knows it."""
        running = self._cluster.leader
        if running is None or running.node.controller_role is None:
            return {}
        image = running.node.controller_role.state_machine.image
        return {
            f"{name}-{number}": found.leader
            for name, topic in sorted(image.topics_by_name.items())
            for number, found in sorted(topic.partitions.items())
            if found.leader != NO_LEADER
        }

    def _keep_up(self) -> None:
        """Start what ended by itself, as a supervisor does."""
        for node_id, machine in self._cluster.machines.items():
            if not machine.is_up and not self._down[node_id]:
                self._down[node_id] += 1
                pause_s = self._draws.stream(f"restarts of {node_id}").uniform(*RESTART_S)
                self._scheduler.at(self._scheduler.now + pause_s, self._may_start, node_id)
        self._scheduler.at(self._scheduler.now + LOOK_S, self._keep_up)

    def _may_start(self, node_id: int) -> None:
        """One of those that keep it down does so no longer."""
        if self._down[node_id]:  # else all was healed meanwhile
            self._down[node_id] -= 1
        if not self._down[node_id]:
            self._cluster.start(node_id)

    # ---- links

    def _cut(self, fault: SimFault, source: str, target: str) -> Lift:
        self._cluster.network.cut(source, target)
        return partial(self._cluster.network.heal, source, target)

    def _partial(self, fault: SimFault, one: str, other: str) -> Lift:
        """These two do not reach each other; all others reach both."""
        return self._part((one, other))

    def _slow(self, fault: SimFault, source: str, target: str) -> Lift:
        return _slower(self._cluster.network.link(source, target), fault)

    def _narrow(self, fault: SimFault, source: str, target: str) -> Lift:
        bytes_per_s = int(fault.detail.removesuffix("KB/s")) * 1000
        self._cluster.network.narrow(source, target, bytes_per_s)
        return partial(self._cluster.network.widen, source, target, bytes_per_s)

    def _reset(self, fault: SimFault, source: str, target: str) -> None:
        if not self._cluster.network.reset(source, target):
            raise NothingToDo("nothing connects them")

    def _isolate(self, fault: SimFault, node_id: int) -> Lift:
        here = host_of(node_id)
        return self._part(*((here, host_of(other)) for other in self._cluster.machines if other != node_id))

    def _bridge(self, fault: SimFault, node_id: int) -> Lift:
        """The others are two halves that do not reach each other, and it reaches both."""
        others = [host_of(other) for other in self._cluster.machines if other != node_id]
        half = len(others) // 2
        return self._part(*product(others[:half], others[half:]))

    def _part(self, *pairs: tuple[str, str]) -> Lift:
        """Cut both directions between each pair."""
        network = self._cluster.network
        both_ways = [way for one, other in pairs for way in ((one, other), (other, one))]
        for way in both_ways:
            network.cut(*way)

        def lift() -> None:
            for way in both_ways:
                network.heal(*way)

        return lift

    def _refuse(self, fault: SimFault, node_id: int) -> Lift:
        refused = self._cluster.network.refused
        ports = [(host_of(node_id), BROKER_PORT), (host_of(node_id), CONTROLLER_PORT)]
        refused.update(ports)
        return partial(refused.subtract, ports)

    # ---- processes and machines

    def _running(self, node_id: int) -> ProcessLoop:
        """Raises `NothingToDo`."""
        process = self._cluster.machines[node_id].process
        if process is None:
            raise NothingToDo(f"{host_of(node_id)} is down")
        return process

    def _kill(self, fault: SimFault, node_id: int) -> Lift:
        self._running(node_id)
        self._down[node_id] += 1
        self._cluster.machines[node_id].kill("")
        return partial(self._may_start, node_id)

    def _successor(self, fault: SimFault, node_id: int) -> Lift:
        """It dies, and so does the first that is elected in its place, a moment later."""
        led = [partition for partition, leader in self.leaders().items() if leader == node_id]
        delay, _, alone = fault.detail.partition(" ")
        succession = Succession(
            led, node_id, self._scheduler.now + SUCCESSION_S, float(delay.removesuffix("ms")) / 1000,
            is_alone=alone == ALONE, lifts=[self._kill(fault, node_id)],
        )  # fmt: skip
        self._follow(succession)
        return succession.lift

    def _follow(self, succession: Succession) -> None:
        """Looks until one of these partitions has another leader."""
        leaders, now = self.leaders(), self._scheduler.now
        before = succession.before
        elected = next(
            (leaders[each] for each in succession.led if leaders.get(each, before) != before), None
        )
        if self.is_over:
            return
        if elected is not None:
            if succession.is_alone and not succession.is_lifted:
                here, others = host_of(elected), self._cluster.shape.brokers
                succession.lifts.append(
                    self._part(*((here, host_of(other)) for other in others if other != elected))
                )
            self._scheduler.at(now + succession.lives_s, self._end_successor, elected)
        elif now < succession.until_s:
            self._scheduler.at(now + SOON_S, self._follow, succession)

    def _end_successor(self, node_id: int) -> None:
        if not self.is_over:
            self._cluster.machines[node_id].kill("just elected")

    def _die_in(self, fault: SimFault, node_id: int) -> Lift:
        """Between two operations of its disk, a write half done; of a node that is down, as it starts."""
        disk = self._cluster.machines[node_id].disk
        disk.kill_before(int(fault.detail))
        return partial(disk.kill_before, None)

    def _stop(self, fault: SimFault, node_id: int) -> Lift:
        self._running(node_id)
        self._down[node_id] += 1
        self._cluster.stop(node_id)
        return partial(self._may_start, node_id)

    def _pause(self, fault: SimFault, node_id: int) -> Lift:
        process = self._running(node_id)
        process.hold()
        return partial(ProcessLoop.go_on, process)

    def _clock(self, fault: SimFault, node_id: int) -> Lift:
        clock = self._cluster.machines[node_id].clock
        by_ms = int(fault.detail.removesuffix("s")) * 1000
        clock.wall_offset_ms += by_ms

        def lift() -> None:
            clock.wall_offset_ms -= by_ms

        return lift

    def _power(self, fault: SimFault, node_id: int) -> Lift:
        """Of a node that is down too: its page cache is still there."""
        self._down[node_id] += 1
        self._cluster.machines[node_id].lose_power()
        return partial(self._may_start, node_id)

    def _power_off(self, nodes: Sequence[int]) -> Lift:
        """All of them in one moment."""
        for node_id in nodes:
            self._down[node_id] += 1
            self._cluster.machines[node_id].lose_power()

        def lift() -> None:
            for node_id in nodes:
                self._may_start(node_id)

        return lift

    # ---- disks

    def _slow_disk(self, fault: SimFault, node_id: int) -> Lift:
        disk = self._cluster.machines[node_id].disk
        quick = _slower(disk, fault)

        def lift() -> None:
            quick()
            process = self._cluster.machines[node_id].process
            if process is not None and not disk.extra_s:
                process.disk_recovers()

        return lift

    def _fail_disk(self, fault: SimFault, node_id: int) -> Lift:
        operation, code, after, count = fault.detail.split()
        disk = self._cluster.machines[node_id].disk
        planted = disk.fail(operation, CODES[code], after=int(after), count=int(count))

        def lift() -> None:
            if planted.count < int(count):
                self._cluster.story.visit(f"{fault.kind} struck")
            else:
                self._tell(f"{fault.kind} {fault.target} {fault.detail} has not struck")
            planted.count = 0

        return lift

    def _lose_directory(self, fault: SimFault, node_id: int) -> Lift:
        number, _, how = fault.detail.partition(" ")
        directories = self._cluster.shape.log_dirs_of(node_id)
        if int(number) > len(directories):
            raise NothingToDo(f"{host_of(node_id)} has no directory {number}")
        disk, device = self._cluster.machines[node_id].disk, device_of(directories[int(number) - 1])
        disk.lose_device(device)
        return partial(self._restart, node_id, partial(disk.replace_device, device, is_empty=how == NEW))

    def _restart(self, node_id: int, meanwhile: Callable[[], None]) -> None:
        """As an operator does it who replaces a disk."""
        self._down[node_id] += 1
        self.restarting += 1
        self._cluster.stop(node_id)
        self._go_on_when_down(node_id, meanwhile, self._scheduler.now + STOP_S)

    def _go_on_when_down(self, node_id: int, meanwhile: Callable[[], None], until_s: float) -> None:
        machine, now = self._cluster.machines[node_id], self._scheduler.now
        if machine.is_up and now < until_s:
            self._scheduler.at(now + SOON_S, self._go_on_when_down, node_id, meanwhile, until_s)
            return
        machine.kill("it does not stop")
        meanwhile()
        try:
            self._cluster.format(node_id)
        except FatalError as error:
            self._tell(f"{host_of(node_id)} is not formatted: {error.reason}")
        self.restarting -= 1
        self._may_start(node_id)

    def _cool_disk(self, fault: SimFault, node_id: int) -> Lift:
        disk = self._cluster.machines[node_id].disk
        missed, share = disk.missed, float(fault.detail.removesuffix("%")) / 100
        disk.cold += share

        def lift() -> None:
            disk.cold = round(disk.cold - share, 2)
            if disk.missed > missed:
                self._cluster.story.visit("disk-cold missed")

        return lift

    def _spoil_disk(self, fault: SimFault, node_id: int) -> Lift:
        disk = self._cluster.machines[node_id].disk
        struck = disk.struck
        self._tell(f"{disk.spoil(self._draws.fresh(f'page of {fault}'))} is spoilt")

        def lift() -> None:
            if disk.struck > struck:
                self._cluster.story.visit("bad-sector struck")
            disk.mend()

        return lift


def _slower(what: OneWay | MachineDisk, fault: SimFault) -> Lift:
    by_s = float(fault.detail.removesuffix("ms")) / 1000
    what.extra_s += by_s

    def lift() -> None:
        what.extra_s = round(what.extra_s - by_s, 6)

    return lift


def device_of(directory: str) -> str:
    """The directory of the root at which the device is mounted."""
    return f"/{directory.split('/')[1]}"


def _end(name: str) -> str:
    """The host of a node, or of a client."""
    return host_of(int(name)) if name.isdecimal() else name
