"""Proposals on their way: each ends exactly once, COMMITTED, REFUSED, TOO_LARGE or UNKNOWN.

    propose -> queued -> appended at an index -> applied -> on_done

A proposal belongs to the term in which it was made. If that leadership is gone before it is
appended it surely never commits (REFUSED: it is not handed on to the next leader); afterwards
nobody knows (UNKNOWN). `on_done` runs from `deliver` only, never inside `propose` or an apply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from metadata_quorum.raft.port import Applied, ProposalOutcome

OnDone = Callable[[Applied], None]


@dataclass(slots=True)
class Proposal:
    """One command and its proposer's callback. `on_done` is None once its end is decided."""

    command: bytes
    term: int
    deadline: float
    on_done: OnDone | None


class Proposals:
    """All open proposals of one voter."""

    def __init__(self) -> None:
        self._queue: deque[Proposal] = deque()
        self._appended: dict[int, Proposal] = {}
        self._by_age: deque[Proposal] = deque()
        self._ended: deque[tuple[OnDone, Applied]] = deque()

    @property
    def busy(self) -> bool:
        """Whether something waits for the next tick."""
        return bool(self._queue or self._ended)

    @property
    def next_deadline(self) -> float:
        while self._by_age and self._by_age[0].on_done is None:
            self._by_age.popleft()
        return self._by_age[0].deadline if self._by_age else float("inf")

    def submit(self, command: bytes, term: int, deadline: float, on_done: OnDone) -> None:
        """Queue a command that this leader of `term` accepted."""
        proposal = Proposal(command, term, deadline, on_done)
        self._queue.append(proposal)
        self._by_age.append(proposal)

    def refuse(self, on_done: OnDone, why: ProposalOutcome) -> None:
        """End a proposal that this voter, or any voter, cannot take."""
        self._ended.append((on_done, Applied(why)))

    def take(self, term: int) -> Iterator[Proposal]:
        """The queued proposals made in `term`, to be appended now; older ones are refused."""
        while self._queue:
            proposal = self._queue.popleft()
            if proposal.on_done is None:
                continue
            if proposal.term == term:
                yield proposal
            else:
                self._end(proposal, Applied(ProposalOutcome.REFUSED))

    def appended(self, index: int, proposal: Proposal) -> None:
        self._appended[index] = proposal

    def applied(self, index: int, term: int, result: object) -> None:
        """The entry at `index` was applied."""
        proposal = self._appended.pop(index, None)
        if proposal is None:
            return
        if proposal.term == term:
            self._end(proposal, Applied(ProposalOutcome.COMMITTED, index, term, result))
        else:
            self._end(proposal, Applied(ProposalOutcome.UNKNOWN))

    def leadership_lost(self) -> None:
        """What is in the log may or may not commit; what is not in it never will."""
        for _ in self.take(term=-1):  # no proposal has this term: all are refused
            raise AssertionError
        for index in sorted(self._appended):
            self._end(self._appended[index], Applied(ProposalOutcome.UNKNOWN))
        self._appended.clear()

    def expire(self, now: float) -> None:
        """End what waited too long. A queued one could still be appended, unless it is dropped:
        `take` passes over it, so it is surely never committed, but UNKNOWN is what callers expect."""
        while self._by_age and (self._by_age[0].on_done is None or self._by_age[0].deadline <= now):
            self._end(self._by_age.popleft(), Applied(ProposalOutcome.UNKNOWN))

    def deliver(self) -> None:
        """Call the proposers' callbacks. Each is called once, even if one of them raises."""
        for _ in range(len(self._ended)):
            on_done, applied = self._ended.popleft()
            on_done(applied)

    def _end(self, proposal: Proposal, applied: Applied) -> None:
        if proposal.on_done is not None:
            self._ended.append((proposal.on_done, applied))
            proposal.on_done = None
