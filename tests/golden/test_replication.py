"""One partition on three brokers and a controller, step by step.

    produce 1 all          a record to broker 1 (acks 1 or all): its outcome
    fetch 2                broker 2 fetches from its leader; `ask 2`, `take 2` are the two halves
    controller 1           broker 1's oldest AlterPartition reaches the controller; `lost`: no answer back
    publish 1 | all        metadata reaches a broker
    fence 1, unfence 1, crash 1, restart 1
    pass 5, sweep 1        time, and the sweep for laggards
    show                   every replica

What a step acknowledges to the producer is printed after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.sim.replication_checks import values_of
from chaos.sim.replication_world import ReplicationWorld
from data_plane.replication.partition import ALL_REPLICAS
from tests.golden.scenario_runner import run_commands, scenarios


def ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def show(world: ReplicationWorld) -> Iterator[str]:
    reg = world.controller.registration
    yield f"controller: leader {reg.leader} epoch {reg.leader_epoch} isr {ids(reg.isr)}"
    for broker_id, broker in world.brokers.items():
        p = broker.partition
        if p is None:
            yield f"{broker_id}: dead"
            continue
        role = f"follows {p.leader_id}" if p.leader is None else "leads"
        values = [v.decode() for v in values_of(p).values()]
        line = f"{broker_id}: {role} epoch {p.leader_epoch}"
        line += f" log {p.log.log_start_offset} {values} hw {p.high_watermark}"
        if p.leader is not None:
            line += f" isr {ids(p.leader.isr)} maximal {ids(p.leader.maximal_isr)}"
            if p.leader.change is not None:
                line += f" asks for {ids(p.leader.change.isr)}"
        yield line


def run(world: ReplicationWorld, command: str) -> Iterator[str]:
    name, *args = command.split()
    if name == "show":
        yield from show(world)
    elif name == "produce":
        acks = ALL_REPLICAS if args[1] == "all" else int(args[1])
        acked = set(world.acked)
        yield world.produce(int(args[0]), acks).name
        yield from _acked(world, acked)
    elif name == "publish":
        acked = set(world.acked)
        if args == ["all"]:
            world.publish_all()
        else:
            world.publish(int(args[0]))
        yield from _acked(world, acked)
    elif name == "controller":
        acked = set(world.acked)
        world.answer_isr(int(args[0]), lose_answer=args[1:] == ["lost"])
        yield from _acked(world, acked)
    elif name == "pass":
        world.pass_time(float(args[0]))
    elif name in ("fetch", "ask", "take"):
        acked = set(world.acked)
        if not getattr(world, name)(int(args[0])):
            yield "nothing"
        yield from _acked(world, acked)
    elif name in ("fence", "unfence", "crash", "restart", "sweep"):
        getattr(world, name)(int(args[0]))
    else:
        raise ValueError(command)


def _acked(world: ReplicationWorld, before: set[bytes]) -> Iterator[str]:
    for value in world.acked:
        if value not in before:
            yield f"acknowledged {value.decode()}"


@pytest.mark.row("R2", "R3", "R5")
@pytest.mark.parametrize("path", scenarios("replication"))
def test_replicas_behave_as_written(path: Path) -> None:
    world = ReplicationWorld()
    run_commands(path, lambda command: run(world, command))
