"""How a command gets into Raft, and its reply back to the proposer.

    command -> stamp (term, time) -> raft.propose -> committed and applied -> reply, or BrokerError

The term is the controller epoch: without one, this node is not the active controller, and every command
but the claim itself is refused with NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar, cast

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.protocol import stamped_command
from metadata_quorum.protocol.commands import ClaimLeadership, Command
from metadata_quorum.protocol.replies import Refused
from metadata_quorum.protocol.stamped_command import StampedCommand
from metadata_quorum.raft.port import Applied, ProposalOutcome, Raft

ReplyT = TypeVar("ReplyT")

NOT_ACTIVE: Final = -1
"""The term of a controller that is not active."""


class Proposer:
    """All calls on the node's event loop."""

    def __init__(
        self,
        raft: Raft,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        request_timeout_ms: int,
    ) -> None:
        self._raft = raft
        self._loop = loop
        self._now_ms = now_ms
        self._request_timeout_ms = request_timeout_ms
        self.term = NOT_ACTIVE
        """The term in which this controller is active; the owner sets it."""

    @property
    def is_active(self) -> bool:
        return self.term != NOT_ACTIVE

    def check_active(self) -> None:
        """Raises `BrokerError`, NOT_CONTROLLER."""
        if not self.is_active:
            leader = self._raft.leader_id
            where = f"the active controller appears to be node {leader}" if leader >= 0 else "none is known"
            raise BrokerError(ErrorCode.NOT_CONTROLLER, f"This is not the active controller; {where}.")

    def claim(self, term: int, command: ClaimLeadership) -> None:
        """The one command of a controller that is not active yet. A proposal may end UNKNOWN long before a
        slow quorum commits it, so nobody waits here: the state machine reports a claim that it applies."""
        self._submit(term, command, lambda applied: None)

    def submit(self, command: Command[object], on_end: Callable[[], None] = lambda: None) -> None:
        """Propose without waiting. `on_end` is called when the proposal has ended, in whichever way."""
        self._submit(self.term, command, lambda applied: on_end())

    async def propose(self, command: Command[ReplyT], timeout_ms: int | None = None) -> ReplyT:
        """The decision's reply. Raises `BrokerError`: NOT_CONTROLLER, POLICY_VIOLATION (not done),
        REQUEST_TIMED_OUT (the outcome is unknown), or the error that the decision refused it with."""
        self.check_active()
        reply: asyncio.Future[ReplyT | Refused] = self._loop.create_future()
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        timer = self._loop.call_later(limit_ms / 1000, _time_out, reply)
        self._submit(self.term, command, lambda applied: _settle(reply, applied))
        try:
            answer = await reply
        finally:
            timer.cancel()
        if isinstance(answer, Refused):
            raise BrokerError(answer.error, answer.message)
        return answer

    def _submit(self, term: int, command: Command[object], settle: Callable[[Applied], None]) -> None:
        self._raft.propose(stamped_command.encode(StampedCommand(term, self._now_ms(), command)), settle)


def _settle(reply: asyncio.Future[ReplyT | Refused], applied: Applied) -> None:
    """A refusal is a result: a future with an exception makes a cycle with the frames that this passes."""
    if not reply.done():
        reply.set_result(cast(ReplyT, _answer(applied)))


def _answer(applied: Applied) -> object:
    if applied.outcome is ProposalOutcome.COMMITTED:
        return applied.result
    if applied.outcome is ProposalOutcome.TOO_LARGE:
        # Not NOT_CONTROLLER: brokers would look for another controller, and send all of it again and again.
        return Refused(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    if applied.outcome is ProposalOutcome.REFUSED:
        return Refused(ErrorCode.NOT_CONTROLLER, "No longer the active controller.")
    lost = "The controller lost its leadership: the outcome is unknown."
    return Refused(ErrorCode.REQUEST_TIMED_OUT, lost)


def _time_out(reply: asyncio.Future[ReplyT | Refused]) -> None:
    if not reply.done():
        late = "Not committed in time: the outcome is unknown."
        reply.set_result(Refused(ErrorCode.REQUEST_TIMED_OUT, late))
