"""How patient a voter is, and how much it keeps: the figures behind `controller.quorum.*`.

Lowest part of the Raft room; `voter.py` is handed one `RaftConfig`, kraft/config/node_config.py fills it.

The election timeout is long beside the heartbeat on purpose: a busy two-core machine stalls a
process for a few hundred milliseconds now and then, and that must not cost a leader. A leader
that really died is noticed by its broken connections, after `leader_lost_grace_ms`, not by this
timeout.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Times in milliseconds, sizes in bytes."""

    election_timeout_min_ms: int = 1000
    """controller.quorum.election.timeout.ms: silence of a leader that a follower bears at least;
    until then it also refuses to help others to depose the leader (stickiness)."""
    election_timeout_max_ms: int = 2000
    heartbeat_ms: int = 150
    election_backoff_ms: int = 150
    """First pause after an election that nobody won; doubles up to `election_timeout_min_ms`."""
    leader_lost_grace_ms: int = 100
    """From a leader's broken connection to the first pre-vote, unless it comes back."""
    leader_lost_jitter_ms: int = 80
    leader_gone_jitter_ms: int = 30
    """From the proof that a leader's process has ended to the first pre-vote, at most."""
    check_quorum_ms: int = 2000
    """controller.quorum.fetch.timeout.ms: a leader that a majority has not answered for this long
    steps down, so that a deaf leader does not stay for ever."""
    proposal_timeout_ms: int = 10_000
    """A proposal that is not committed by then ends UNKNOWN."""

    append_bytes: int = 65_536
    """Entries per append message; one larger entry still travels alone."""
    appends_in_flight: int = 32
    """Unanswered messages per follower before the leader waits for its answers."""
    max_command_bytes: int = 8_388_608
    snapshot_entries: int = 10_000
    """A snapshot is taken when this many entries were applied since the last one,"""
    snapshot_bytes: int = 20_971_520
    """metadata.log.max.record.bytes.between.snapshots: or this much of commands."""
    snapshot_chunk_bytes: int = 262_144
    max_snapshot_bytes: int = 1_073_741_824

    def __post_init__(self) -> None:
        if not 0 < self.election_timeout_min_ms < self.election_timeout_max_ms:
            raise ValueError("the election timeouts must be positive and in order")
        if self.heartbeat_ms * 3 >= self.election_timeout_min_ms:
            raise ValueError("three heartbeats must fit into the election timeout")
        if self.check_quorum_ms <= self.heartbeat_ms * 3:
            raise ValueError("the quorum check must outlast three heartbeats")
        if min(self.append_bytes, self.appends_in_flight, self.snapshot_entries, self.snapshot_bytes) < 1:
            raise ValueError("append and snapshot limits must be positive")
