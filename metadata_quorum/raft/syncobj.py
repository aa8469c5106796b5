"""PySyncObj, tamed: the only file that knows it.

PySyncObj keeps the elections (term, vote, counting of votes), the counting of acknowledgements into
a commit index, leader fallback, and the order of apply. What it does unsafely is overridden and
goes through `Hooks` to voter.py: receiving entries, acknowledging, sending, snapshots, forwarding of
commands (there is none), and the election timer. raft/__init__.py says why, finding by finding.

The overrides lean on private names of exactly one version; tests/unit/raft/test_pinned_sources.py
holds a hash of every method that is overridden or relied on.

PySyncObj reads a module-wide clock. Several voters share a process in simulations, so that clock is
an indirection here: each call into PySyncObj sets it to the calling voter's `now` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import pysyncobj.syncobj as _upstream
from pysyncobj.config import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.journal import RaftJournal

PINNED_VERSION: Final = "0.3.17"
if VERSION != PINNED_VERSION:
    raise ImportError(f"pysyncobj {PINNED_VERSION} is needed (its internals are overridden), found {VERSION}")

_NEVER: Final = float("inf")


class _Now:
    """What PySyncObj's clock shows at the moment."""

    value = 0.0


_upstream.monotonicTime = lambda: _Now.value
_create_journal = _upstream.createJournal
_upstream.createJournal = lambda journal: (
    journal if isinstance(journal, RaftJournal) else _create_journal(journal)
)


class Hooks(Protocol):
    """What the core needs of the voter around it."""

    def ask_for_vote(self, peer: int, term: int, last_index: int, last_term: int) -> None: ...
    def give_vote(self, peer: int, term: int) -> None: ...
    def apply_entry(self, command: bytes) -> None:
        """Now, or later where that takes long or enough was applied in this turn: `Core.applied` tells."""

    def leadership_won(self) -> None: ...
    def leadership_lost(self) -> None: ...


class _VoteTransport(Transport):
    """Carries the two kinds of messages that PySyncObj still writes itself."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__(None, None, [])
        self._hooks = hooks

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        match message:
            case {"type": "request_vote", "term": term, "last_log_index": index, "last_log_term": last_term}:
                self._hooks.ask_for_vote(node.id, term, index, last_term)
            case {"type": "response_vote", "term": term}:
                self._hooks.give_vote(node.id, term)
            case _:
                raise AssertionError(f"PySyncObj sends {message.get('type')!r} behind our back")
        return True


class _NoPoller:
    """PySyncObj polls its sockets at the end of a tick; it has none."""

    def poll(self, timeout: float) -> None:
        pass


class Core(_upstream.SyncObj):
    """PySyncObj's state machine of one voter, driven by method calls only."""

    _SyncObj__raftLeader: Any

    def __init__(
        self,
        node_id: int,
        others: list[int],
        journal: RaftJournal,
        hooks: Hooks,
        config: RaftConfig,
        now: float,
    ) -> None:
        self._hooks = hooks
        self._nodes = {peer: Node(peer) for peer in others}
        self._journal = journal
        self.read_clock(now)
        conf = SyncObjConf(
            autoTick=False,
            journalFile=journal,
            appendEntriesPeriod=config.heartbeat_ms / 1000,
            raftMinTimeout=config.election_timeout_min_ms / 1000,
            raftMaxTimeout=config.election_timeout_max_ms / 1000,
            connectionTimeout=config.election_timeout_max_ms / 1000,
            leaderFallbackTimeout=config.check_quorum_ms / 1000,
            dynamicMembershipChange=False,
            useFork=False,
        )
        nodes = list(self._nodes.values())
        super().__init__(Node(node_id), nodes, conf=conf, transport=_VoteTransport(hooks))
        self._poller = _NoPoller()
        # Behind the snapshot, not behind PySyncObj's first entry.
        self._SyncObj__raftLastApplied = journal.base_index
        self._SyncObj__raftCommitIndex = max(journal.base_index, journal.getRaftCommitIndex())

    # -- state, by readable names ------------------------------------------------------------------

    def read_clock(self, now: float) -> None:
        """Every entry point sets PySyncObj's clock first."""
        _Now.value = now

    @property
    def is_leader(self) -> bool:
        return bool(self._isLeader())

    @property
    def term(self) -> int:
        return int(self._SyncObj__raftCurrentTerm)

    @property
    def voted_for(self) -> int | None:
        return self._SyncObj__votedForNodeId  # type: ignore[no-any-return]

    @property
    def leader_id(self) -> int:
        leader = self._SyncObj__raftLeader
        return -1 if leader is None else int(leader.id)

    @property
    def commit_index(self) -> int:
        return int(self._SyncObj__raftCommitIndex)

    @property
    def last_applied(self) -> int:
        return int(self._SyncObj__raftLastApplied)

    @property
    def match_index(self) -> Mapping[int, int]:
        """What each other voter is known to hold; counted by PySyncObj."""
        counted = self._SyncObj__raftMatchIndex
        return {peer: counted.get(self._nodes[peer], 0) for peer in sorted(self._nodes)}

    @property
    def last_contact(self) -> Mapping[int, float]:
        answered = self._SyncObj__lastResponseTime
        return {
            peer: answered[self._nodes[peer]] for peer in sorted(self._nodes) if self._nodes[peer] in answered
        }

    # -- what the voter calls ---------------------------------------------------------------------

    def run_tick(self, now: float) -> None:
        """Candidacy, counting, fallback, apply."""
        self.read_clock(now)
        self.doTick(0.0)

    def set_connected(self, peer: int, *, up: bool) -> None:
        connected = self._SyncObj__connectedNodes
        (connected.add if up else connected.discard)(self._nodes[peer])

    def start_election(self) -> None:
        """Become a candidate at the next tick. Who leads has no reason to, however late a vote comes."""
        if not self.is_leader:
            self._SyncObj__raftElectionDeadline = -_NEVER

    def vote_requested(self, peer: int, term: int, last_index: int, last_term: int) -> None:
        message = {
            "type": "request_vote",
            "term": term,
            "last_log_index": last_index,
            "last_log_term": last_term,
        }
        super()._SyncObj__onMessageReceived(self._nodes[peer], message)

    def vote_given(self, peer: int, term: int) -> None:
        super()._SyncObj__onMessageReceived(self._nodes[peer], {"type": "response_vote", "term": term})

    def adopt_term(self, term: int) -> None:
        """A higher term is about: follow it, without a leader or a vote so far."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(_upstream._RAFT_STATE.FOLLOWER)
        self._SyncObj__raftLeader = None
        self._SyncObj__raftElectionDeadline = _NEVER

    def record_vote(self, voted_for: int) -> None:
        """The vote of the current term is spent, on that voter."""
        self._SyncObj__setCurrentTerm(self.term, voted_for)

    def follow(self, leader: int, term: int) -> None:
        """An append of the leader of `term` came in."""
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(_upstream._RAFT_STATE.FOLLOWER)
        self._SyncObj__raftLeader = self._nodes[leader]
        self._SyncObj__raftElectionDeadline = _NEVER

    def forget_leader(self) -> None:
        self._SyncObj__raftLeader = None

    def commit_to(self, index: int) -> None:
        """A follower learns what is committed."""
        if index > self.commit_index:
            self._SyncObj__raftCommitIndex = index
            self._journal.setRaftCommitIndex(index)

    def applied(self, index: int) -> None:
        """The next entry was applied."""
        self._SyncObj__raftLastApplied = index

    def restored_to(self, index: int) -> None:
        """A snapshot replaced the state machine's state and the log up to `index`."""
        self._SyncObj__raftCommitIndex = max(self.commit_index, index)
        self._SyncObj__raftLastApplied = index

    def answered(self, peer: int, now: float) -> None:
        self._SyncObj__lastResponseTime[self._nodes[peer]] = now

    def stood_still(self, seconds: float) -> None:
        """Answers may have been waiting unread: that time does not count as silence."""
        answered = self._SyncObj__lastResponseTime
        for node in answered:
            answered[node] += seconds

    def matched(self, peer: int, index: int) -> None:
        """`peer` holds the leader's log up to `index`; PySyncObj counts it at the next tick."""
        counted = self._SyncObj__raftMatchIndex
        node = self._nodes[peer]
        counted[node] = max(counted.get(node, 0), index)

    def matches_nothing(self, peer: int) -> None:
        """`peer` lost what it held."""
        self._SyncObj__raftMatchIndex[self._nodes[peer]] = 0

    # -- overrides (private names of PySyncObj) ------------------------------------------------------

    def _SyncObj__generateRaftTimeout(self) -> float:
        return _NEVER  # elections start when election.py says so

    def _SyncObj__onMessageReceived(self, node: Any, message: dict[str, Any]) -> None:
        raise AssertionError("frames go to the voter, not to PySyncObj")

    def _SyncObj__sendAppendEntries(self) -> None:
        pass  # leading.py sends, at the end of the voter's tick

    def _SyncObj__applyLogEntries(self) -> bool:
        """Apply entries in order, as many as are applied at once."""
        while (position := self.last_applied) < self.commit_index:
            command, _, _ = self._journal[position + 1 - self._journal.base_index]
            self._hooks.apply_entry(command)
            if self.last_applied == position:
                break
        return False

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:
        raise AssertionError("entries are applied by voter.py")

    def _checkCommandsToApply(self) -> None:
        pass  # proposals.py queues them, and nothing is ever forwarded to another leader

    def _SyncObj__tryLogCompaction(self) -> None:
        pass  # voter.py decides about snapshots

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        raise AssertionError("snapshots are ours")

    def _SyncObj__onBecomeLeader(self) -> None:
        self._SyncObj__raftElectionDeadline = _NEVER
        super()._SyncObj__onBecomeLeader()
        self._hooks.leadership_won()

    def _SyncObj__setState(self, state: int) -> None:
        was_leader = self.is_leader
        super()._SyncObj__setState(state)
        if was_leader and not self.is_leader:
            self._hooks.leadership_lost()
