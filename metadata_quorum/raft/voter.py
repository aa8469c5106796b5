"""One voter: implements the Raft port on the tamed PySyncObj.

    propose ──> proposals ──┐                        ┌──> applier ──> state machine, on_done
                            ├─> journal ─> core ─────┤
    receive ──> following ──┘   (fsync)  (PySyncObj) └──> leading ──> outbox ──> link
            └─> elections, admission

`receive` and `propose` only take in; `tick` does the work of one turn in one order: elections,
proposals into the journal, one fsync, PySyncObj's tick (count, apply), sending, a second fsync if
something was written meanwhile, messages out, proposers answered.

A broken invariant or a failed disk ends the voter for good: the first exception is kept and raised
again by every later call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Final, TypeVar, cast
from uuid import UUID

from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation
from metadata_quorum.raft.admission import VoterAdmission, warn_of_replaced
from metadata_quorum.raft.applier import Applier
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.election import Elections, Votes
from metadata_quorum.raft.following import Following
from metadata_quorum.raft.identity import keep_voters, read_identity
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.leading import Leading
from metadata_quorum.raft.messages import (
    Admit,
    Append,
    AppendReply,
    EntryKind,
    Hello,
    MalformedFrame,
    Message,
    PreVoteReply,
    PreVoteRequest,
    Rejoin,
    SnapshotChunk,
    SnapshotReply,
    VoteReply,
    VoteRequest,
    decode,
)
from metadata_quorum.raft.outbox import Outbox
from metadata_quorum.raft.port import (
    Applied,
    Background,
    ProposalOutcome,
    QuorumState,
    Raft,
    RaftLink,
    StateMachine,
    at_once,
)
from metadata_quorum.raft.proposals import Proposals
from metadata_quorum.raft.snapshots import SnapshotStore
from metadata_quorum.raft.syncobj import Core

T = TypeVar("T")

_MS: Final = 0.001
_COMMAND: Final = bytes([EntryKind.COMMAND])


class SyncObjRaft(Raft):
    """See metadata_quorum/raft/port.py for what each method promises."""

    def __init__(
        self,
        node_id: int,
        voters: list[int],
        cluster_id: str,
        disk: Disk,
        directory: str,
        link: RaftLink,
        machine: StateMachine,
        now: Callable[[], float],
        random: Random,
        config: RaftConfig | None = None,
        background: Background = at_once,
    ) -> None:
        """Recovers from `directory`; `FatalError` where that is not this voter's, or is damaged."""
        if node_id not in voters:
            raise ValueError(f"node {node_id} is not among the voters {voters}")
        config = config or RaftConfig()
        self.node_id = node_id
        self._others = sorted(set(voters) - {node_id})
        self._majority = (len(self._others) + 1) // 2 + 1
        self._config = config
        self._machine = machine
        self._now = now
        self._background = background
        self._failure: Exception | None = None
        self._connected: set[int] = set()
        self.incarnations: dict[int, UUID] = {}
        self._retired: set[UUID] = set()
        self._led_term = -1
        self._ask_at = now()
        self._work = True
        self._alive_at = now()

        identity = read_identity(disk, directory, cluster_id, node_id)
        self.journal = RaftJournal(disk, directory)
        has_taken_part = self.journal.getCurrentTerm() > 0
        keep_voters(disk, directory, identity, voters, has_taken_part=has_taken_part)
        self.applier = Applier(machine, self.journal, SnapshotStore(disk, directory), self._beside)
        self._proposals = Proposals()
        self.outbox = Outbox(link, identity.incarnation, self.journal)
        self.core = Core(node_id, self._others, self.journal, self, config, now())
        self.admission = VoterAdmission(self._others, random.getrandbits(63) + 1, self.journal.admitted)
        self.elections = Elections(config, random, now(), alone=not self._others)
        self._votes = Votes()
        self.following = Following(config, self.core, self.journal, self.applier, self.admission, self.outbox)
        self.leading = Leading(
            node_id,
            config,
            self.core,
            self.journal,
            self.applier,
            self.outbox,
            self._connected.__contains__,
        )
        if self.admission.bootstrapped is not None:  # no other voters: nobody has to vouch
            self._admit({})

    # -- the port: what is known -------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader and self._failure is None

    @property
    def leader_id(self) -> int:
        return self.core.leader_id

    @property
    def term(self) -> int:
        return self.core.term

    @property
    def is_mute(self) -> bool:
        """See admission.py."""
        return self.admission.mute

    @property
    def unconnected(self) -> list[int]:
        """Other voters that this one has no connection to."""
        return [peer for peer in self._others if peer not in self._connected]

    def state(self) -> QuorumState:
        leading = self.core.is_leader
        contact = self.core.last_contact if leading else {}
        return QuorumState(
            leader_id=self.core.leader_id,
            term=self.core.term,
            commit_index=self.core.commit_index,
            last_index=self.journal.last_index,
            match_index=self.leading.match_index() if leading else {},
            last_contact={**contact, self.node_id: self._now()} if leading else {},
            voted_for=-1 if (vote := self.journal.getVotedForNodeId()) is None else vote,
        )

    # -- the port: what comes in -------------------------------------------------------------------

    def propose(self, command: bytes, on_done: Callable[[Applied], None]) -> None:
        self._work = True
        if not self.is_leader:
            self._proposals.refuse(on_done, ProposalOutcome.REFUSED)
            return
        if len(command) > self._config.max_command_bytes:
            self._proposals.refuse(on_done, ProposalOutcome.TOO_LARGE)
            return
        deadline = self._now() + self._config.proposal_timeout_ms * _MS
        self._proposals.submit(_COMMAND + command, self.core.term, deadline, on_done)

    def receive(self, peer: int, frame: bytes) -> None:
        """Raises MalformedFrame."""
        if peer not in self._others:
            raise MalformedFrame(f"{peer} is not a voter of this quorum")
        incarnation, message = decode(frame)
        with self._at_work():
            if isinstance(message, Hello):
                self._on_hello(peer, incarnation, message, self._now())
            elif self._is_current(peer, incarnation):
                self.dispatch(peer, message, self._now())

    def connected(self, peer: int) -> None:
        with self._at_work():
            self._connected.add(peer)
            self.core.set_connected(peer, up=True)
            self.leading.reconnected(peer)
            self._say_hello(peer)
            if peer == self.core.leader_id:
                self.elections.leader_link_back()
            elif self.core.leader_id == -1:
                self.elections.hurry(self._now())

    def disconnected(self, peer: int, *, broken: bool) -> None:
        with self._at_work():
            self._connected.discard(peer)
            self.core.set_connected(peer, up=False)
            if broken and peer == self.core.leader_id:
                self.elections.leader_link_broken(self._now())

    def refused(self, peer: int) -> None:
        with self._at_work():
            if peer == self.core.leader_id:
                self.elections.leader_gone(self._now())

    # -- the port: time ----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        with self._at_work():
            self._work = False
            self._seek_leadership(now)
            self._append_proposals()
            self.journal.sync()
            self.following.commit()
            self.applier.begin_turn()
            self.core.run_tick(now)
            self._work |= not self.applier.busy and self.core.last_applied < self.core.commit_index
            if self.core.is_leader:
                self.leading.replicate(now)
            self._proposals.expire(now)
            if self.applier.snapshot_is_due(self._config):
                self.applier.take_snapshot()
            self.outbox.flush()
            self._proposals.deliver()

    def next_tick_in(self) -> float:
        if self._work or self.outbox or self._proposals.busy:
            return 0.0
        due = self._proposals.next_deadline
        if self.core.is_leader:
            due = min(due, self.leading.heartbeat_at)
        else:
            due = min(due, self._ask_at if self.admission.mute else self.elections.due_at)
        # At least once in so long, to know that it lives.
        return min(max(0.0, due - self._now()), self._config.heartbeat_ms * _MS)

    def close(self) -> None:
        """Open proposals end; nothing is sent any more."""
        self._failure = self._failure or FatalError(ExitCode.USAGE, "this voter is closed.")
        self._proposals.leadership_lost()
        self.journal._destroy()
        self._proposals.deliver()

    # -- elections ---------------------------------------------------------------------------------

    def _seek_leadership(self, now: float) -> None:
        if self.core.is_leader:
            return
        if self.admission.mute:
            self._ask_for_vouching(now)
        elif now >= self.elections.due_at:
            self.core.forget_leader()
            if self.following.installing:
                self.elections.put_off(now)
                return
            term = self.core.term + 1
            round_ = self.elections.ask(now, term, self.node_id)
            request = PreVoteRequest(term, round_, self.journal.last_index, self.journal.last_term)
            for peer in self._others:
                self.outbox.put(peer, request)
            if self.elections.won(self._majority):
                self.core.start_election()

    def _on_pre_vote_request(self, peer: int, message: PreVoteRequest, now: float) -> None:
        if self.admission.mute:
            return
        if peer == self.core.leader_id and message.term > self.core.term:
            # A candidate does not lead.
            self.core.forget_leader()
            self.elections.hurry(now)
        theirs = (message.last_term, message.last_index)
        granted = (
            message.term > self.core.term
            and theirs >= (self.journal.last_term, self.journal.last_index)
            and not self.core.is_leader
            and not self.elections.sticks(now)
        )
        self.outbox.put(peer, PreVoteReply(self.core.term, message.round, granted))

    def _on_pre_vote_reply(self, peer: int, message: PreVoteReply) -> None:
        if message.term > self.core.term:
            self.core.adopt_term(message.term)
        elif message.granted and self.elections.granted(
            message.round, peer, self.core.term + 1, self._majority
        ):
            self.core.start_election()

    def _on_vote_request(self, peer: int, message: VoteRequest) -> None:
        if not self.admission.mute:
            self.core.vote_requested(peer, message.term, message.last_index, message.last_term)

    def _on_vote_reply(self, peer: int, message: VoteReply) -> None:
        # A copy of a vote is not another vote.
        if message.term == self.core.term and self._votes.counts(message.term, peer):
            self.core.vote_given(peer, message.term)

    # -- admission ---------------------------------------------------------------------------------

    def _is_current(self, peer: int, incarnation: UUID) -> bool:
        """False for what a voter said before it lost its disk; and for a new incarnation, until it has
        echoed our nonce: what is dead cannot, however late its last words arrive."""
        if self.incarnations.setdefault(peer, incarnation) == incarnation:
            return True
        if incarnation not in self._retired:
            self._say_hello(peer)
        return False

    def _proved_alive(self, peer: int, incarnation: UUID) -> None:
        known = self.incarnations.setdefault(peer, incarnation)
        if known != incarnation and incarnation not in self._retired:
            self._retired.add(known)
            self.incarnations[peer] = incarnation
            self.leading.reincarnated(peer)

    def _say_hello(self, peer: int) -> None:
        self.outbox.put(peer, self._hello(self.admission.nonce, echo=0, vouch=False))

    def _hello(self, nonce: int, *, echo: int, vouch: bool) -> Hello:
        return Hello(self.core.term, self.core.leader_id, nonce, echo, self.admission.mute, vouch)

    def _ask_for_vouching(self, now: float) -> None:
        if now >= self._ask_at:
            self._ask_at = now + self._config.heartbeat_ms * _MS
            for peer in self._others:
                self._say_hello(peer)

    def _on_hello(self, peer: int, incarnation: UUID, message: Hello, now: float) -> None:
        if message.nonce:
            if incarnation in self._retired:
                warn_of_replaced(peer)
            vouch = self.admission.vouches_for(peer, incarnation)
            self.outbox.put(peer, self._hello(0, echo=message.nonce, vouch=vouch))
        if message.echo == self.admission.nonce:
            self._proved_alive(peer, incarnation)
            if message.vouch:
                self.admission.vouched(peer, incarnation)
                bootstrapped = self.admission.bootstrapped
                if bootstrapped is not None:
                    self._admit(bootstrapped)
        if (
            peer == self.core.leader_id
            and message.leader_id != peer
            and message.term >= self.core.term
            and self._is_current(peer, incarnation)
        ):
            self.core.forget_leader()  # it was restarted, and does not lead any more
            self.elections.hurry(now)

    def _admit(self, peers: Mapping[int, UUID]) -> None:
        self.journal.admit(peers)
        self.admission.admitted_with(peers)
        self.elections.hurry(self._now())

    # -- dispatch ----------------------------------------------------------------------------------

    def dispatch(self, peer: int, message: Message, now: float) -> None:
        match message:
            case Append() | SnapshotChunk():
                self._on_leader(peer, message, now)
            case AppendReply():
                self.leading.append_reply(peer, message, now)
            case SnapshotReply():
                self.leading.snapshot_reply(peer, message, now)
            case PreVoteRequest():
                self._on_pre_vote_request(peer, message, now)
            case PreVoteReply():
                self._on_pre_vote_reply(peer, message)
            case VoteRequest():
                self._on_vote_request(peer, message)
            case VoteReply():
                self._on_vote_reply(peer, message)
            case Rejoin():
                self.leading.rejoin(peer, message)
            case Admit():
                if self.following.admit(peer, message):
                    self._admit({})

    def _on_leader(self, peer: int, message: Append | SnapshotChunk, now: float) -> None:
        if self.following.is_stale(peer, message):
            return
        self.core.follow(peer, message.term)
        self.elections.heard_leader(now)
        if isinstance(message, Append):
            self.following.append(peer, message)
        else:
            self.following.snapshot_chunk(peer, message)

    def _append_proposals(self) -> None:
        if not self.core.is_leader:
            return
        for proposal in self._proposals.take(self.core.term):
            index = self.journal.last_index + 1
            self.journal.add(proposal.command, index, self.core.term)
            self._proposals.appended(index, proposal)

    # -- hooks of the core -------------------------------------------------------------------------

    def ask_for_vote(self, peer: int, term: int, last_index: int, last_term: int) -> None:
        """PySyncObj became a candidate."""
        self.outbox.put(peer, VoteRequest(term, last_index, last_term))

    def give_vote(self, peer: int, term: int) -> None:
        """PySyncObj voted for `peer`."""
        self.elections.voted(self._now())
        self.outbox.put(peer, VoteReply(term))

    def apply_entry(self, command: bytes) -> None:
        """The next committed entry is to be applied."""
        if self.applier.may_apply:
            self.applier.apply(command, self._applied)

    def _applied(self, index: int, term: int, result: object) -> None:
        self.core.applied(index)
        self._proposals.applied(index, term, result)

    def leadership_won(self) -> None:
        """PySyncObj counted a majority of votes, and put its no-op into the log."""
        self._led_term = self.core.term
        self.leading.won(self._others)
        self._work = True
        self._machine.became_leader(self._led_term)

    def leadership_lost(self) -> None:
        """Deposed, or without a majority's answers for too long."""
        self.elections.voted(self._now())
        self._proposals.leadership_lost()
        self._proposals.deliver()
        self._machine.lost_leadership(self._led_term)

    def _notice_stall(self, now: float) -> None:
        """A voter that is alive is called at every heartbeat interval, if only by its own timer."""
        lived = 2 * self._config.heartbeat_ms * _MS
        lost, self._alive_at = now - self._alive_at - lived, now
        if lost > 0.0:
            self.elections.stood_still(lost)
            self.core.stood_still(lost)

    def _beside(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """What fails there fails here."""

        def attempt() -> tuple[T | None, Exception | None]:
            try:
                return work(), None
            except Exception as error:  # noqa: BLE001 - raised again on the loop
                return None, error

        def ended(outcome: tuple[T | None, Exception | None]) -> None:
            result, error = outcome
            if self._failure is not None:
                return
            with self._at_work():
                if error is not None:
                    raise error
                done(cast(T, result))

        self._background(attempt, ended)

    # -- failure -----------------------------------------------------------------------------------

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Around everything that changes state."""
        if self._failure is not None:
            raise self._failure
        self._work = True
        now = self._now()
        self.core.read_clock(now)
        self._notice_stall(now)
        try:
            yield
        except MalformedFrame:
            raise
        except OSError as e:
            self._failure = FatalError(
                ExitCode.DISK_FAILED, f"the metadata log's disk failed: {e}. Nothing more is acknowledged."
            )
            raise self._failure from e
        except (FatalError, InvariantViolation) as e:
            self._failure = e
            raise
        except Exception as e:
            self._failure = InvariantViolation(Invariant.RAFT_NEVER_RAISES, repr(e))
            raise self._failure from e
