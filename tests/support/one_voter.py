"""The Raft port with a single voter that leads when the test says so: the twin of SyncObjRaft.

tests/contract/test_raft.py holds both to the same promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.port import Applied, ProposalOutcome, StateMachine


class OneVoter:
    """Raft with a single voter: commits at the next turn of the loop, unless the test holds it."""

    node_id = 1

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self.is_leader = False
        self.term = 0
        self.index = 0
        self.held = False
        self.max_command_bytes = RaftConfig().max_command_bytes
        self._waiting: list[tuple[bytes, int, Callable[[Applied], None]]] = []

    @property
    def leader_id(self) -> int:
        return 1 if self.is_leader else -1

    def propose(self, command: bytes, on_done: Callable[[Applied], None]) -> None:
        loop = asyncio.get_event_loop()
        if not self.is_leader:
            loop.call_soon(on_done, Applied(ProposalOutcome.REFUSED))
            return
        if len(command) > self.max_command_bytes:
            loop.call_soon(on_done, Applied(ProposalOutcome.TOO_LARGE))
            return
        self._waiting.append((command, self.term, on_done))
        if not self.held:
            loop.call_soon(self.commit)

    def commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for command, term, on_done in waiting:
            self.index += 1
            result = self.machine.apply(self.index, term, command)
            on_done(Applied(ProposalOutcome.COMMITTED, self.index, term, result))

    def expire(self) -> None:
        """What was proposed ends UNKNOWN, and may still be committed."""
        for _, _, on_done in self._waiting:
            on_done(Applied(ProposalOutcome.UNKNOWN))
        self._waiting = [(command, term, lambda applied: None) for command, term, _ in self._waiting]

    def lead(self) -> None:
        self.term += 1
        self.is_leader = True
        self.machine.became_leader(self.term)

    def step_down(self) -> None:
        self.is_leader = False
        waiting, self._waiting = self._waiting, []
        for _, _, on_done in waiting:
            on_done(Applied(ProposalOutcome.UNKNOWN))
        self.machine.lost_leadership(self.term)
