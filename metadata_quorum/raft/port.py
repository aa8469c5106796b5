"""Raft as the rest of the house sees it: bytes in, committed bytes out, in one order everywhere.

`syncobj.py` implements the port on PySyncObj; nothing else knows that PySyncObj exists.
All calls happen on the node's event loop. Nothing here reads a clock: the driver of the port
calls `tick(now)` often enough (at `next_tick_in()` at the latest) and after every receive.

    proposer -> propose(command) -> journal + peers -> commit -> StateMachine.apply on every node
                                                              -> the proposer's `on_done`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeVar

QUICK_WEIGHT: Final = 500
"""Commands of this weight are applied in some 15 ms."""


class ProposalOutcome(Enum):
    """What became of a proposal."""

    COMMITTED = "committed"
    """Applied here; `Proposal.result` is what `apply` returned."""
    REFUSED = "refused"
    """Surely never committed (this node does not lead)."""
    TOO_LARGE = "too large"
    """Refused by every leader: no message would hold it."""
    UNKNOWN = "unknown"
    """Leadership was lost or time ran out: it may or may not be committed."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The end of a proposal, given to its `on_done`."""

    outcome: ProposalOutcome
    index: int = -1
    term: int = -1
    result: object = None


class StateMachine(Protocol):
    """What is replicated. `apply` is deterministic, reads no clock, and never raises, but for this
    node's own failures: an `OSError` of its disk, lack of memory."""

    @property
    def rolling_hash(self) -> bytes:
        """Of every command applied, and of all that came of it: what came of one command must be the same on
        every voter, whatever its version."""

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Take one committed command; return the proposer's answer. Called in index order,
        exactly once per index since the last `restore` or start."""

    def weight(self, command: bytes) -> int:
        """How long `apply` takes. What weighs more than QUICK_WEIGHT is prepared beside the loop, and no more
        than that is applied in one turn."""

    def prepare(self, index: int, term: int, command: bytes) -> Callable[[], object]:
        """Beside the loop: decide what the command leads to; what is returned applies it, on the loop.
        Nothing else is applied or restored meanwhile."""

    def snapshot(self) -> Callable[[], bytes]:
        """The whole state as of the last applied command. The bytes are made by what is returned, beside
        the loop, while more is applied."""

    def restore(self, data: bytes, index: int, term: int) -> Callable[[], None]:
        """Read a snapshot that covers everything up to `index`, beside the loop; what is returned puts
        it, on the loop, in the place of the state."""

    def became_leader(self, term: int) -> None:
        """This node leads `term`. It may not have applied everything yet: the controller waits
        for its own claim, proposed in this term, to come back through `apply`."""

    def lost_leadership(self, term: int) -> None:
        """This node no longer leads `term`; pending proposals have ended UNKNOWN."""


T = TypeVar("T")


class Background(Protocol):
    """Beside the loop: where large snapshots are written and read, and what changes half of a large cluster
    is decided. Either takes seconds."""

    def __call__(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run `work` there, then `done` with its result here. Neither is run once the process is dead."""


def at_once(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """A `Background` that runs the work at once, on the loop."""
    done(work())


class RaftLink(Protocol):
    """The way to the other voters: ordered per connection, may lose everything at any time."""

    def send(self, peer: int, frame: bytes) -> bool:
        """Hand one frame over; False where there is no connection to that voter."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What DescribeQuorum and `kraft quorum status` show. Indexes are Raft log indexes."""

    leader_id: int
    term: int
    commit_index: int
    last_index: int
    match_index: Mapping[int, int]
    """Per voter (self included), known on the leader only."""
    last_contact: Mapping[int, float]
    """Per voter, seconds on the loop's clock of its last answer; known on the leader only."""
    voted_for: int = -1
    """The voter that it voted for in this term; -1 for nobody."""


class Raft(Protocol):
    """One voter."""

    node_id: int

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_id(self) -> int:
        """The known leader's id, -1 where none is known."""

    @property
    def term(self) -> int: ...

    @property
    def is_mute(self) -> bool:
        """Whether this voter's disk is new and it does not count yet: it may have known a later term."""

    def state(self) -> QuorumState: ...

    def propose(self, command: bytes, on_done: Callable[[Applied], None]) -> None:
        """Append `command` if this node leads; `on_done` is called exactly once, never
        re-entrantly from inside `propose`."""

    def receive(self, peer: int, frame: bytes) -> None:
        """One frame from a voter, in the order of its newest connection. A malformed frame
        raises `ValueError`, and the caller closes that connection."""

    def connected(self, peer: int) -> None:
        """A connection to (or from) that voter is up."""

    def disconnected(self, peer: int, *, broken: bool) -> None:
        """It is gone. `broken`: the other end closed or reset it (its process probably died), as
        against our own giving up; a broken leader is followed by an early pre-vote."""

    def refused(self, peer: int) -> None:
        """Its host refuses connections to it: no process listens there. After its connection broke
        that proves its death, and a leader's pre-vote follows at once."""

    def tick(self, now: float) -> None:
        """Let time pass: elections, heartbeats, commits, applies, snapshots."""

    def next_tick_in(self) -> float:
        """Seconds until `tick` is due at the latest; 0.0 where there is work to do now."""

    def close(self) -> None: ...
