"""Raft, from outside: every frame that leaves a voter, against what its disk would have after a power loss.

    network tap -> RaftFrame -> is the promise durable, the vote the only one? -> committed on a majority?

The invariants are those of `Invariant`, checked as in chaos/sim/raft_world.py, on voters inside whole nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chaos.sim.durable_voter import DurableVoter
from chaos.simulator.cluster import CONTROLLER_PORT, Cluster, RunningNode
from chaos.simulator.stream import Stream
from kraft.wire.api_keys import ApiKey
from kraft.wire.header import request_header
from kraft.wire.raft_frame import RAFT_API_VERSION
from kraft.wire.raft_frame import decode as decode_raft_frame
from metadata_quorum.foundation.invariants import Invariant
from metadata_quorum.raft.messages import Append, VoteReply, VoteRequest, decode

if TYPE_CHECKING:
    from metadata_quorum.raft.voter import SyncObjRaft

Report = Callable[[str, str], None]
"""Rule, what."""

_LENGTH: Final = 4
_HEADER: Final = request_header(ApiKey.RAFT_FRAME, RAFT_API_VERSION, 0, None)
_API_KEY: Final = _HEADER[:2]


class QuorumOracle:
    """See the module."""

    def __init__(self, cluster: Cluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._voters: dict[int, SyncObjRaft] = {}
        self._durable = {
            node_id: DurableVoter(cluster.machines[node_id].disk, f"/n{node_id}/data/raft")
            for node_id in cluster.shape.controllers
        }
        self._seen: dict[int, tuple[int, int]] = {}
        """Term and commit index of a running voter."""
        self._bases: dict[int, int] = {}
        """Where the journal of a running voter begins."""
        self._votes: dict[tuple[int, UUID, int], int] = {}
        self._leaders: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        """Index to term."""
        self._committed_in: dict[int, int] = {}
        """Index to the term of who was seen first to have committed it."""
        cluster.network.taps.append(self._sent)
        cluster.on_start.append(self._started)

    def _started(self, node_id: int, running: RunningNode) -> None:
        role = running.node.controller_role
        if role is not None:
            self._voters[node_id] = role.voter
            self._seen.pop(node_id, None)
            self._bases[node_id] = role.voter.journal.base_index

    def _sent(self, stream: Stream, data: bytes) -> None:
        if stream.remote[1] != CONTROLLER_PORT or not data.startswith(_API_KEY, _LENGTH):
            return
        frame = decode_raft_frame(memoryview(data)[_LENGTH + len(_HEADER) :])
        source, target = frame.source, frame.target
        voter = self._voters[source]
        opened = decode(frame.frame)
        message = opened.message
        broken = self._durable[source].broken_promise(source, target, message, voter.journal)
        if broken is not None:
            self._report(Invariant.DURABLE_BEFORE_COUNTED.name, broken)
        if isinstance(message, VoteReply | VoteRequest):
            vote = target if isinstance(message, VoteReply) else source
            if self._votes.setdefault((source, opened.incarnation, message.term), vote) != vote:
                what = f"voter {source} voted twice in term {message.term}"
                self._report(Invariant.TERM_AND_COMMIT_MONOTONIC.name, what)
        elif isinstance(message, Append) and message.term not in self._leaders:
            self._cluster.story.visit("raft leader")
            self._check_leader(source, message.term, voter)
        if isinstance(message, Append) and self._leaders.setdefault(message.term, source) != source:
            what = f"{self._leaders[message.term]} and {source} lead term {message.term}"
            self._report(Invariant.ONE_LEADER_PER_TERM.name, what)
        self._check(source, voter)

    def _check(self, node_id: int, voter: SyncObjRaft) -> None:
        core, journal = voter.core, voter.journal
        term, commit = self._seen.get(node_id, (0, 0))
        if core.term < term or core.commit_index < commit:
            what = f"term or commit of voter {node_id} went back"
            self._report(Invariant.TERM_AND_COMMIT_MONOTONIC.name, what)
        if core.is_leader and core.commit_index > journal.durable_index:
            what = f"leader {node_id} commits {core.commit_index} before it is durable"
            self._report(Invariant.DURABLE_BEFORE_COUNTED.name, what)
        for index in range(max(commit, journal.base_index) + 1, core.commit_index + 1):
            entry_term = journal.term_at(index)
            if entry_term is None:
                continue
            if index not in self._committed:
                self._committed[index], self._committed_in[index] = entry_term, core.term
                self._check_majority(index, entry_term)
            elif self._committed[index] != entry_term:
                what = f"voter {node_id} commits {index} of another term"
                self._report(Invariant.STATE_MACHINE_SAFETY.name, what)
        self._seen[node_id] = (core.term, core.commit_index)
        if journal.base_index > self._bases[node_id]:
            self._bases[node_id] = journal.base_index
            self._cluster.story.visit("snapshot")

    def _check_leader(self, node_id: int, term: int, voter: SyncObjRaft) -> None:
        """At its first message: it has all that was committed in earlier terms."""
        journal = voter.journal
        for index, entry_term in self._committed.items():
            if index > journal.base_index and self._committed_in[index] < term:
                found = journal.term_at(index)
                if found != entry_term:
                    what = (
                        f"leader {node_id} of term {term} has {found} at {index}, committed is {entry_term}"
                    )
                    self._report(Invariant.LEADER_COMPLETENESS.name, what)
                    return

    def _check_majority(self, index: int, term: int) -> None:
        holders = sum(durable.holds(index, term) for durable in self._durable.values())
        if holders <= len(self._durable) // 2:
            what = f"({index}, {term}) is committed and on {holders} disks only"
            self._report(Invariant.COMMITTED_ON_A_MAJORITY.name, what)
