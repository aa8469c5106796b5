"""When to ask for votes, and when to help others to.

PySyncObj counts votes; when an election starts is decided here. Before it, a pre-vote asks whether a
majority would follow: terms then do not grow while a voter is cut off, and a voter that hears
a living leader refuses to depose it (stickiness). A leader whose process died is told by its broken
connections: after a short grace the pre-vote starts early, and those whose own link to the
leader broke as well do not stick to it.

Silence is counted in time that this voter has lived: while it stood still (a busy machine, a long turn of
its loop) it could not have heard anybody.

Pure: `now` and randomness come in. Times are float seconds of the loop's clock.
"""

from __future__ import annotations

from random import Random
from typing import Final

from metadata_quorum.raft.config import RaftConfig

_MS: Final = 0.001


class Elections:
    """The election clock of one voter."""

    def __init__(self, config: RaftConfig, random: Random, now: float, *, alone: bool) -> None:
        self._config = config
        self.random = random
        self._attempts = 0
        self._heard_at = float("-inf")
        self._link_broken = False
        # Right after its start a voter asks soon; if there is a leader, stickiness refuses it.
        self.due_at = now if alone else now + random.random() * config.election_backoff_ms * _MS
        self._silence_due_at = self.due_at
        self._round = 0
        self._granted: set[int] = set()
        self._asked_term: int | None = None

    # -- signs of life ---------------------------------------------------------------------------

    def heard_leader(self, now: float) -> None:
        """A valid append came in."""
        self._heard_at = now
        self._link_broken = False
        self._attempts = 0
        self._asked_term = None
        spread = self._config.election_timeout_max_ms - self._config.election_timeout_min_ms
        self.due_at = now + (self._config.election_timeout_min_ms + self.random.random() * spread) * _MS
        self._silence_due_at = self.due_at

    def leader_link_broken(self, now: float) -> None:
        """The leader's end closed or reset its connection: it probably died."""
        self._link_broken = True
        grace = self._config.leader_lost_grace_ms + self.random.random() * self._config.leader_lost_jitter_ms
        self.due_at = min(self.due_at, now + grace * _MS)

    def leader_gone(self, now: float) -> None:
        """The leader's process has certainly ended: no grace, but voters should still not ask in step."""
        if self._link_broken:
            jitter = self.random.random() * self._config.leader_gone_jitter_ms
            self.due_at = min(self.due_at, now + jitter * _MS)

    def leader_link_back(self) -> None:
        """Connected to the leader again: its silence counts as usual, and counts from its last word. A
        connection alone is no sign of life, for a proxy accepts on behalf of the dead."""
        if self._link_broken:
            self._link_broken = False
            self.due_at = max(self.due_at, self._silence_due_at)

    def hurry(self, now: float) -> None:
        """No leader is known and something changed for the better, or the voter known as leader says
        that it does not lead (any more): ask soon."""
        self._heard_at = float("-inf")
        self._attempts = 0
        self.due_at = min(self.due_at, now + self._pause())

    def stood_still(self, seconds: float) -> None:
        """Do not count the time in which this process stood still as anybody's silence."""
        self._heard_at += seconds
        self._silence_due_at += seconds
        self.due_at += seconds

    def voted(self, now: float) -> None:
        """Gave a vote, or lost leadership: leave the candidate time to win."""
        self.due_at = now + self._pause()

    def sticks(self, now: float) -> bool:
        """Whether a leader is alive as far as this voter knows."""
        return not self._link_broken and now < self._heard_at + self._config.election_timeout_min_ms * _MS

    def put_off(self, now: float) -> None:
        """A snapshot is being taken in, which a leader never does: ask when that is done."""
        self.due_at = now + self._pause()

    # -- pre-vote --------------------------------------------------------------------------------

    def ask(self, now: float, term: int, me: int) -> int:
        """Start a round for `term`; its number."""
        self._round += 1
        self._asked_term = term
        self._granted = {me}
        self.due_at = now + self._pause()
        self._attempts += 1
        return self._round

    def granted(self, round_: int, peer: int, term: int, majority: int) -> bool:
        """A pre-vote came in for `term`; True once, when a majority would follow."""
        if round_ != self._round or term != self._asked_term:
            return False
        self._granted.add(peer)
        return self.won(majority)

    def won(self, majority: int) -> bool:
        """Whether the round has its majority; a won round is spent."""
        if self._asked_term is None or len(self._granted) < majority:
            return False
        self._asked_term = None
        return True

    def _pause(self) -> float:
        """Random, longer with every attempt, so that two candidates part ways."""
        base = self._config.election_backoff_ms * 2.0 ** min(self._attempts, 10)
        base = min(base, self._config.election_timeout_min_ms)
        return base * (1.0 + self.random.random()) * _MS


class Votes:
    """The votes of one election, each voter's counted once."""

    def __init__(self) -> None:
        self._term = -1
        self._voters: set[int] = set()

    def counts(self, term: int, voter: int) -> bool:
        """False for a copy of a vote that was counted already."""
        if term != self._term:
            self._term = term
            self._voters.clear()
        if voter in self._voters:
            return False
        self._voters.add(voter)
        return True
