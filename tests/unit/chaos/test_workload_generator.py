"""The steps of a workload: the same for the same seed, and fit to be done by a client."""

from __future__ import annotations

import random
from itertools import islice

from chaos.workload.generator import (
    AssignStep,
    CrashStep,
    Mix,
    PollStep,
    SendStep,
    Step,
    SubscribeStep,
    Values,
    steps,
)

WRITTEN = ("all-0", "all-1")
READ = ("zero-0", "zero-1", "all-0", "all-1")
BUSY = Mix(send=10, poll=10, assign=5, subscribe=5, crash=5)


def drawn(seed: int, mix: Mix = BUSY, worker: int = 0, written: tuple[str, ...] = WRITTEN) -> list[Step]:
    return list(islice(steps(random.Random(seed), mix, Values(worker, 4), written, READ), 2_000))


def sends_of(step: Step) -> tuple[tuple[str, int], ...]:
    return step.sends if isinstance(step, SendStep | CrashStep) else ()


def test_a_seed_draws_the_same_steps_again_and_another_seed_others():
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_no_two_workers_ever_send_the_same_value_and_each_counts_up():
    values = [[value for step in drawn(1, worker=n) for _, value in sends_of(step)] for n in range(4)]
    assert all(mine == sorted(set(mine)) for mine in values)
    assert len(set().union(*values)) == sum(map(len, values))


def test_a_client_knows_what_to_read_before_it_polls():
    is_told = False
    for step in drawn(3):
        if isinstance(step, AssignStep | SubscribeStep):
            is_told = True
        elif isinstance(step, CrashStep):
            is_told = False
        elif isinstance(step, PollStep):
            assert is_told


def test_every_kind_of_step_comes_and_all_keys_are_used():
    found = drawn(5)
    assert {type(step) for step in found} == {SendStep, PollStep, AssignStep, SubscribeStep, CrashStep}
    assert {key for step in found for key, _ in sends_of(step)} == set(WRITTEN)
    assert {key for step in found if isinstance(step, AssignStep) for key in step.keys} == set(READ)
    assert max(len(sends_of(step)) for step in found) > 1
    crashes = [step for step in found if isinstance(step, CrashStep)]
    assert (
        {bool(crash.sends) for crash in crashes}
        == {crash.static_member for crash in crashes}
        == {True, False}
    )
    for step in found:
        if isinstance(step, SubscribeStep):
            assert step.keys == tuple(key for key in READ if key[:-2] in step.topics)


def test_a_client_without_a_topic_of_its_mode_only_reads():
    assert not any(map(sends_of, drawn(2, written=())))


def test_a_weight_of_nothing_leaves_a_step_out():
    kinds = {type(step) for step in drawn(4, Mix(send=1, poll=1, assign=1, subscribe=0, crash=0))}
    assert kinds == {SendStep, PollStep, AssignStep}
