"""What the Raft port promises to proposers and to the state machine. PySyncObj's voters (alone, and as the
leader of three) and the single voter that the controller's tests stand on pass the same suite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import pytest

from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.port import Applied, ProposalOutcome
from tests.support.one_voter import OneVoter
from tests.support.virtual_loop import run_virtually
from tests.unit.raft.rig import Machine, Rig


class Proposing(Protocol):
    """The part of the port that is held to its promises here."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_id(self) -> int: ...

    @property
    def term(self) -> int: ...

    def propose(self, command: bytes, on_done: Callable[[Applied], None]) -> None: ...


class Quorum(Protocol):
    """A voter, and what moves it."""

    raft: Proposing
    machine: Machine
    can_lose_leadership: bool

    def lead(self) -> None: ...

    def hold(self) -> None:
        """Nothing is committed until it steps down."""

    def step_down(self) -> None:
        """Another voter is elected."""

    async def settle(self) -> None: ...


class OneVoterQuorum:
    can_lose_leadership = True

    def __init__(self) -> None:
        self.machine = Machine()
        self.raft = OneVoter(self.machine)

    def lead(self) -> None:
        self.raft.lead()

    def hold(self) -> None:
        self.raft.held = True

    def step_down(self) -> None:
        self.raft.step_down()

    async def settle(self) -> None:
        await asyncio.sleep(0.01)


class SyncObjQuorum:
    def __init__(self, voters: int) -> None:
        self._rig = Rig(voters)
        self._rig.settle()
        self.raft = self._rig.rafts[1]
        self.machine = self._rig.machines[1]
        self.can_lose_leadership = voters > 1

    def lead(self) -> None:
        self._rig.elect(1)

    def hold(self) -> None:
        self._rig.held = {(1, 2), (1, 3)}

    def step_down(self) -> None:
        self._rig.elect(2)

    async def settle(self) -> None:
        self._rig.settle()


QUORUMS: dict[str, Callable[[], Quorum]] = {
    "one voter": OneVoterQuorum,
    "syncobj alone": lambda: SyncObjQuorum(1),
    "syncobj of three": lambda: SyncObjQuorum(3),
}

pytestmark = [pytest.mark.row("Q1"), pytest.mark.parametrize("make", QUORUMS.values(), ids=QUORUMS.keys())]


def test_only_a_leader_takes_proposals(make: Callable[[], Quorum]) -> None:
    async def play() -> None:
        quorum, ends = make(), list[Applied]()
        assert not quorum.raft.is_leader
        assert quorum.raft.leader_id == -1
        quorum.raft.propose(b"a", ends.append)
        assert not ends, "not from inside propose"
        await quorum.settle()
        assert [end.outcome for end in ends] == [ProposalOutcome.REFUSED]
        assert quorum.machine.values == []

    run_virtually(play())


def test_what_no_message_would_hold_is_refused_for_that(make: Callable[[], Quorum]) -> None:
    async def play() -> None:
        quorum, ends = make(), list[Applied]()
        quorum.lead()
        await quorum.settle()
        quorum.raft.propose(bytes(RaftConfig().max_command_bytes + 1), ends.append)
        assert not ends, "not from inside propose"
        await quorum.settle()
        assert [end.outcome for end in ends] == [ProposalOutcome.TOO_LARGE]
        assert quorum.machine.values == []

    run_virtually(play())


def test_a_leader_is_announced_with_its_term(make: Callable[[], Quorum]) -> None:
    async def play() -> None:
        quorum = make()
        before = quorum.raft.term
        quorum.lead()
        await quorum.settle()
        assert quorum.raft.is_leader
        assert quorum.raft.leader_id == 1
        assert quorum.raft.term > before
        assert quorum.machine.calls == [f"leads {quorum.raft.term}"]

    run_virtually(play())


def test_commands_are_applied_once_and_in_order_and_answered_with_their_results(
    make: Callable[[], Quorum],
) -> None:
    async def play() -> None:
        quorum, ends = make(), list[Applied]()
        quorum.lead()
        await quorum.settle()
        for command in (b"a", b"b", b"c"):
            quorum.raft.propose(command, ends.append)
            assert not ends, "not from inside propose"
        await quorum.settle()
        await quorum.settle()
        assert quorum.machine.values == [b"a", b"b", b"c"]
        assert {end.outcome for end in ends} == {ProposalOutcome.COMMITTED}
        assert [end.result for end in ends] == [b"did a", b"did b", b"did c"]
        assert {end.term for end in ends} == {quorum.raft.term}
        indexes = [end.index for end in ends]
        assert indexes == sorted(set(indexes))

    run_virtually(play())


def test_who_loses_leadership_does_not_know_what_becomes_of_its_proposals(
    make: Callable[[], Quorum],
) -> None:
    async def play() -> None:
        quorum, ends = make(), list[Applied]()
        if not quorum.can_lose_leadership:
            return
        quorum.lead()
        await quorum.settle()
        term = quorum.raft.term
        quorum.hold()
        quorum.raft.propose(b"a", ends.append)
        quorum.step_down()
        await quorum.settle()
        assert [end.outcome for end in ends] == [ProposalOutcome.UNKNOWN]
        assert not quorum.raft.is_leader
        assert quorum.machine.calls == [f"leads {term}", f"lost {term}"]

    run_virtually(play())
