"""Schedules for the simulated partition: random ones from a seed, and the one that leader epochs are for.

With `TRUNCATE_TO_HIGH_WATERMARK`, as replication was before leader epochs, `classic_schedule` and, over
some seeds, `run_seed` lose an acknowledged record; with `TRUNCATE_BY_EPOCHS` none.
"""

from __future__ import annotations

import random

from chaos.sim.replication_broker import LAG_TIME_MAX
from chaos.sim.replication_world import ReplicationWorld
from data_plane.replication.partition import ALL_REPLICAS
from fetch.follower import TRUNCATE_BY_EPOCHS, FollowerRules

MOVE_ODDS = 0.02
"""How often a step of a world with spare brokers moves the partition."""


def classic_schedule(rules: FollowerRules) -> ReplicationWorld:
    """KIP-101's first scenario: a record is on all replicas and acknowledged, but the followers have
    not learnt the high watermark yet. The leader dies, then the one that took over."""
    world = ReplicationWorld(rules=rules)
    a, b, c = world.brokers
    world.produce(a)
    world.fetch(b)
    world.fetch(c)
    # These tell the leader that they have the record, and so it is acknowledged; the answers, which
    # would tell them of the new high watermark, do not arrive.
    world.ask(b)
    world.ask(c)
    world.crash(a)
    world.fence(a)
    world.publish(b)
    world.publish(c)
    # c follows b now, has not fetched from it, and is in the ISR.
    world.crash(b)
    world.fence(b)
    world.publish(c)
    world.produce(c, acks=1)
    world.heal()
    return world


def run_seed(
    seed: int, rules: FollowerRules = TRUNCATE_BY_EPOCHS, steps: int = 300, spare: int = 0
) -> ReplicationWorld:
    """Random steps with crashes, lost answers and late metadata; then everything heals. With `spare` brokers
    the partition moves about meanwhile.

    Raises InvariantViolation as soon as a check fails.
    """
    rng = random.Random(seed)
    world = ReplicationWorld(rules=rules, min_insync=rng.choice((1, 2)), spare=spare)
    for _ in range(steps):
        if spare and rng.random() < MOVE_ODDS:
            _move(world, rng)
        random_step(world, rng)
    world.heal()
    return world


def _move(world: ReplicationWorld, rng: random.Random) -> None:
    if rng.random() < 0.3 and world.controller.registration.reassigning:
        world.controller.call_off()
    else:
        world.controller.reassign(rng.sample(list(world.brokers), rng.randint(1, 3)))


def random_step(world: ReplicationWorld, rng: random.Random) -> None:
    """One step of anybody."""
    broker_id = rng.choice(list(world.brokers))
    broker = world.brokers[broker_id]
    roll = rng.random()
    if broker.partition is None:
        if roll < 0.2:
            world.restart(broker_id)
        elif roll < 0.5:
            world.fence(broker_id)
    elif roll < 0.25:
        world.produce(broker_id, rng.choice((1, ALL_REPLICAS)))
    elif roll < 0.45:
        world.ask(broker_id)
    elif roll < 0.62:
        world.take(broker_id)
    elif roll < 0.72:
        world.answer_isr(broker_id, lose_answer=rng.random() < 0.3)
    elif roll < 0.86:
        world.publish(broker_id)
    elif roll < 0.90:
        world.pass_time(rng.choice((0.1, LAG_TIME_MAX / 2, LAG_TIME_MAX * 1.1)))
        world.sweep(broker_id)
    elif roll < 0.93:
        world.checkpoint(broker_id)
    elif roll < 0.96:
        if broker_id not in world.controller.active:
            world.unfence(broker_id)
    elif roll < 0.97:
        world.delete_records(broker_id)
    elif roll < 0.985:
        world.fence(broker_id)  # alive, but cut off from the controller
    else:
        world.crash(broker_id)
