"""Mutants of Raft: its journal, votes, commits."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, mutant

RAFT: Final = "metadata_quorum/raft"

QUORUM: Final = (
    mutant(
        "raft-truncates-below-its-commit",
        "KAFKA-12460, PySyncObj",
        "what matches is kept, however late a copy of a message comes",
        f"{RAFT}/log_matching.py",
        "        if ours is not None and ours != term:\n",
        "        if ours is not None:\n",
        ("unit/raft/test_receive.py",),
    ),
    mutant(
        "commit-before-an-entry-of-the-own-term",
        "KAFKA-12619, Raft §5.4.2",
        "a leader counts copies of its own term's entries only",
        f"{RAFT}/syncobj.py",
        "        self.doTick(0.0)\n",
        "        self.doTick(0.0)\n"
        "        if self.is_leader:\n"
        "            held = sorted([*self.match_index.values(), self._journal.last_index])\n"
        "            if held[(len(held) - 1) // 2] > self.commit_index:\n"
        "                self.commit_to(held[(len(held) - 1) // 2])\n",
        ("unit/raft/test_acks.py",),
    ),
    mutant(
        "minority-controller-never-resigns",
        "KAFKA-15489",
        "a leader without its majority's answers steps down",
        f"{RAFT}/syncobj.py",
        "            leaderFallbackTimeout=config.check_quorum_ms / 1000,\n",
        "            leaderFallbackTimeout=1e9,\n",
        (
            "golden/test_raft.py",
            "unit/raft/test_elections.py",
        ),
    ),
    mutant(
        "term-and-vote-forgotten",
        "PySyncObj 202",
        "term and vote are durable before a message depends on them",
        f"{RAFT}/journal.py",
        "        self._note(_TERM_FIELDS.pack(_TERM, term, vote))",
        "        self._pending.append(_TERM_FIELDS.pack(_TERM, term, vote))",
        ("unit/raft/test_durability.py",),
    ),
    mutant(
        "commit-ahead-of-the-journal",
        "PySyncObj 197",
        "what is committed is on the device first",
        f"{RAFT}/journal.py",
        "        self.sync()\n        invariant(\n            index <= self._durable_index,",
        "        invariant(\n            index > 0,",
        ("unit/raft/test_durability.py",),
        Edit(
            f"{RAFT}/voter.py",
            "            self.journal.sync()\n            self.following.commit()\n",
            "            self.following.commit()\n",
        ),
    ),
    mutant(
        "journal-trimmed-past-the-snapshot",
        "PySyncObj",
        "a trimmed journal keeps what follows the snapshot",
        f"{RAFT}/journal.py",
        "            kept = self._entries[index - self.base_index + 1 :]\n",
        "            kept = self._entries[index - self.base_index + 2 :]\n",
        ("unit/raft/test_snapshots_beside_the_loop.py",),
    ),
    mutant(
        "page-cache-believed-after-a-restart",
        "fsyncgate",
        "what a dead process left is written again before it counts",
        f"{RAFT}/journal.py",
        "        self._rewrite(self._entries, self._commit)\n\n",
        "        self._durable_bytes, self._durable_index = self._file.size(), self.last_index\n\n",
        ("unit/raft/test_every_disk_operation.py",),
    ),
    mutant(
        "vote-counted-twice",
        "PySyncObj",
        "each voter's vote counts once",
        f"{RAFT}/election.py",
        "        if voter in self._voters:\n            return False\n",
        "",
        ("unit/raft/test_acks.py",),
    ),
    mutant(
        "answer-of-an-earlier-term",
        "PySyncObj",
        "an acknowledgement counts in the term in which it was given",
        f"{RAFT}/leading.py",
        "is_leader or term != self._core.term:\n            return None\n        follower",
        "is_leader:\n            return None\n        follower",
        ("unit/raft/test_acks.py",),
    ),
    mutant(
        "commit-beyond-what-was-verified",
        "PySyncObj",
        "a follower commits no further than the message that tells it has verified",
        f"{RAFT}/log_matching.py",
        "min(message.commit_index, last_verified))",
        "message.commit_index)",
        ("unit/raft/test_receive.py",),
    ),
    mutant(
        "rewound-by-old-answers",
        "PySyncObj (livelock)",
        "an answer from before the last step back undoes nothing",
        f"{RAFT}/replication.py",
        "        if seq < self.floor:\n            return False\n",
        "",
        ("unit/raft/test_receive.py",),
    ),
    mutant(
        "late-snapshot-takes-back",
        "PySyncObj",
        "a snapshot below the commit index is refused",
        f"{RAFT}/following.py",
        "        if chunk.index <= self.commit_index:\n",
        "        if chunk.index < 0:\n",
        ("unit/raft/test_snapshots.py",),
    ),
    mutant(
        "no-stickiness",
        "KIP-996",
        "a voter that hears its leader deposes nobody",
        f"{RAFT}/election.py",
        "        return not self._link_broken and now < ",
        "        return False and now < ",
        ("unit/raft/test_elections.py",),
    ),
    mutant(
        "wiped-voter-votes",
        "PySyncObj",
        "a voter that lost its disk gives no vote until all others have vouched for it",
        f"{RAFT}/voter.py",
        "        if not self.admission.mute:\n            self.core.vote_requested(",
        "        if True:\n            self.core.vote_requested(",
        ("unit/raft/test_rejoin.py",),
    ),
    mutant(
        "rejoin-proven-by-some",
        "PySyncObj",
        "a voter that lost its disk counts again when every other voter has its nonce",
        f"{RAFT}/admission.py",
        "all(index >= pending.at for index in others)",
        "any(index >= pending.at for index in others)",
        ("unit/raft/test_rejoin.py",),
    ),
    mutant(
        "pre-vote-without-a-majority",
        "Raft §9.6",
        "a term begins only where a majority would vote",
        f"{RAFT}/election.py",
        "len(self._granted) < majority",
        "len(self._granted) < 1",
        ("unit/raft/test_elections.py",),
    ),
    mutant(
        "own-standstill-counts-as-silence",
        "gray disk",
        "what a voter waited for its disk is nobody's silence",
        f"{RAFT}/election.py",
        "        self._heard_at += seconds\n"
        "        self._silence_due_at += seconds\n"
        "        self.due_at += seconds\n",
        "        del seconds\n",
        ("unit/raft/test_elections.py",),
    ),
    mutant(
        "command-of-an-earlier-term",
        "PySyncObj",
        "a command that another leader was asked for is decided by nobody",
        "metadata_quorum/controller/state_machine.py",
        "            if proposal.controller_epoch != term:\n",
        "            if proposal.controller_epoch > term:\n",
        ("unit/metadata/test_state_machine.py",),
    ),
    mutant(
        "damaged-snapshot-believed",
        "PySyncObj",
        "a snapshot that does not check out stops the voter",
        f"{RAFT}/snapshots.py",
        " and crc == zlib.crc32(data):\n",
        ":\n",
        ("unit/raft/test_snapshots.py",),
    ),
)
