"""Plays a list of faults against a simulated cluster, and lifts them.

    FaultPlayer.play -> each fault begins and ends when it is due … heal: all are lifted, all nodes run

A role (`controller`, `leader`) is filled with a node when its fault begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from chaos.simulator.cluster import BROKER_PORT, CONTROLLER_PORT, WORLD, Cluster, host_of
from chaos.simulator.faults import CODES, CONTROLLER, LEADER, SimFault
from chaos.simulator.process_loop import ProcessLoop
from metadata_quorum.foundation.model import NO_LEADER

LOOK_S: Final = 0.5
"""A node that ended by itself is started again within this time, and some more."""
RESTART_S: Final = (0.5, 3.0)

Lift = Callable[[], None]


class FaultPlayer:
    """See the module."""

    def __init__(self, cluster: Cluster, faults: Sequence[SimFault], random: Random) -> None:
        self.faults = faults
        self.disk_faults: set[int] = set()
        """Nodes whose disk was damaged: they may end by themselves."""
        self.lossy: set[int] = set()
        """Nodes that may have lost what was not synced."""
        self._cluster = cluster
        self._random = random
        self._scheduler = cluster.scheduler
        self._lifts: dict[SimFault, Lift] = {}
        self._down: set[int] = set()
        """Nodes that a fault keeps down."""
        self._is_over = False
        self._begin: Mapping[str, Callable[[SimFault, int], Lift | None]] = {
            "isolate": self._isolate, "refuse": self._refuse, "kill": self._kill, "die-in": self._die_in,
            "stop": self._stop, "pause": self._pause, "clock": self._clock, "disk-slow": self._slow_disk,
            "disk-error": self._fail_disk, "disk-full": self._fail_disk, "power": self._power,
        }  # fmt: skip
        self._links: Mapping[str, Callable[[SimFault, str, str], Lift | None]] = {
            "cut": self._cut, "slow": self._slow, "reset": self._reset,
        }  # fmt: skip

    def play(self) -> None:
        """From now on."""
        began = self._scheduler.now
        for fault in self.faults:
            self._scheduler.at(began + fault.at_s, self._start, fault)
        self._scheduler.at(began + LOOK_S, self._keep_up)

    def heal(self) -> None:
        """Lift everything; every node runs."""
        self._is_over = True
        for fault in list(self._lifts):
            self._lift(fault)
        self._down.clear()
        for node_id, machine in self._cluster.machines.items():
            machine.disk.heal()
            self._cluster.start(node_id)
        self._tell("everything is healed")

    def _tell(self, what: str) -> None:
        self._cluster.story.tell(self._scheduler.now, WORLD, what)

    def _start(self, fault: SimFault) -> None:
        if self._is_over:
            return
        lift: Lift | None
        if fault.kind == "power-all":
            self._tell(f"{fault.kind} for {fault.for_s:g} s")
            lift = self._power_all()
        elif fault.kind in self._links:
            source, _, target = fault.target.partition(">")
            self._tell(f"{fault.kind} {fault.target} {fault.detail} for {fault.for_s:g} s")
            lift = self._links[fault.kind](fault, _end(source), _end(target))
        else:
            node_id = self._node(fault.target)
            self._tell(f"{fault.kind} {fault.target} ({node_id}) {fault.detail} for {fault.for_s:g} s")
            lift = None if node_id is None else self._begin[fault.kind](fault, node_id)
        self._cluster.story.visit(f"fault {fault.kind}")
        if lift is not None:
            self._lifts[fault] = lift
            self._scheduler.at(self._scheduler.now + fault.for_s, self._lift, fault)

    def _lift(self, fault: SimFault) -> None:
        lift = self._lifts.pop(fault, None)
        if lift is not None:
            self._tell(f"{fault.kind} {fault.target} is lifted")
            lift()

    def _node(self, target: str) -> int | None:
        """Who that is now."""
        running = self._cluster.leader
        if target == CONTROLLER:
            return None if running is None else running.node.config.node_id
        if target == LEADER:
            if running is None or running.node.controller_role is None:
                return None
            image = running.node.controller_role.state_machine.image
            leaders = [
                found.leader
                for _, topic in sorted(image.topics_by_name.items())
                for _, found in sorted(topic.partitions.items())
                if found.leader != NO_LEADER
            ]
            return self._random.choice(leaders) if leaders else None
        return int(target)

    def _keep_up(self) -> None:
        """Start what ended by itself, as whoever supervises a node does."""
        for node_id, machine in self._cluster.machines.items():
            if not machine.is_up and node_id not in self._down:
                self._down.add(node_id)
                pause_s = self._random.uniform(*RESTART_S)
                self._scheduler.at(self._scheduler.now + pause_s, self._start_again, node_id)
        self._scheduler.at(self._scheduler.now + LOOK_S, self._keep_up)

    def _start_again(self, node_id: int) -> None:
        self._down.discard(node_id)
        self._cluster.start(node_id)

    # ---- links

    def _cut(self, fault: SimFault, source: str, target: str) -> Lift:
        self._cluster.network.cut(source, target)
        return partial(self._cluster.network.heal, source, target)

    def _slow(self, fault: SimFault, source: str, target: str) -> Lift:
        link = self._cluster.network.link(source, target)
        link.extra_s = float(fault.detail.removesuffix("ms")) / 1000
        return partial(setattr, link, "extra_s", 0.0)

    def _reset(self, fault: SimFault, source: str, target: str) -> None:
        self._cluster.network.reset(source, target)

    def _isolate(self, fault: SimFault, node_id: int) -> Lift:
        network, here = self._cluster.network, host_of(node_id)
        pairs = [
            pair
            for other in self._cluster.machines
            if other != node_id
            for pair in ((here, host_of(other)), (host_of(other), here))
        ]
        for pair in pairs:
            network.cut(*pair)

        def lift() -> None:
            for pair in pairs:
                network.heal(*pair)

        return lift

    def _refuse(self, fault: SimFault, node_id: int) -> Lift:
        refused = self._cluster.network.refused
        ports = {(host_of(node_id), BROKER_PORT), (host_of(node_id), CONTROLLER_PORT)}
        refused |= ports
        return partial(refused.difference_update, ports)

    # ---- processes and machines

    def _kill(self, fault: SimFault, node_id: int) -> Lift:
        self._down.add(node_id)
        self._cluster.machines[node_id].kill("")
        return partial(self._start_again, node_id)

    def _die_in(self, fault: SimFault, node_id: int) -> Lift:
        """Between two operations of its disk, a write half done."""
        self._cluster.machines[node_id].disk.kill_before(int(fault.detail))
        return partial(self._start_again, node_id)

    def _stop(self, fault: SimFault, node_id: int) -> Lift:
        self._down.add(node_id)
        self._cluster.stop(node_id)
        return partial(self._start_again, node_id)

    def _pause(self, fault: SimFault, node_id: int) -> Lift | None:
        process = self._cluster.machines[node_id].process
        if process is None:
            return None
        process.hold()
        return partial(ProcessLoop.go_on, process)

    def _clock(self, fault: SimFault, node_id: int) -> Lift:
        clock = self._cluster.machines[node_id].clock
        clock.wall_offset_ms = int(fault.detail.removesuffix("s")) * 1000
        return partial(setattr, clock, "wall_offset_ms", 0)

    def _power(self, fault: SimFault, node_id: int) -> Lift:
        self._down.add(node_id)
        self.lossy.add(node_id)
        self._cluster.machines[node_id].lose_power()
        return partial(self._start_again, node_id)

    def _power_all(self) -> Lift:
        for node_id, machine in self._cluster.machines.items():
            self._down.add(node_id)
            self.lossy.add(node_id)
            machine.lose_power()

        def lift() -> None:
            for node_id in self._cluster.machines:
                self._start_again(node_id)

        return lift

    # ---- disks

    def _slow_disk(self, fault: SimFault, node_id: int) -> Lift:
        disk = self._cluster.machines[node_id].disk
        disk.extra_s = float(fault.detail.removesuffix("ms")) / 1000

        def lift() -> None:
            disk.extra_s = 0.0
            process = self._cluster.machines[node_id].process
            if process is not None:
                process.disk_recovers()

        return lift

    def _fail_disk(self, fault: SimFault, node_id: int) -> Lift:
        operation, code, after, count = fault.detail.split()
        disk = self._cluster.machines[node_id].disk
        disk.fail(operation, CODES[code], after=int(after), count=int(count))
        self.disk_faults.add(node_id)
        self.lossy.add(node_id)
        return disk.heal


def _end(name: str) -> str:
    """The host of a node, or of a client."""
    return host_of(int(name)) if name.isdecimal() else name
