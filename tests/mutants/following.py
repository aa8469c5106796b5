"""Mutants of followers, the leader's view of them, high watermarks."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

LOG: Final = "data_plane/log"
REPLICATION: Final = "data_plane/replication"

FOLLOWING: Final = (
    mutant(
        "truncate-to-high-watermark",
        "KIP-101",
        "a follower truncates where its epochs part from the leader's",
        "fetch/follower.py",
        "TRUNCATE_BY_EPOCHS: Final = FollowerRules(by_epochs=True)",
        "TRUNCATE_BY_EPOCHS: Final = FollowerRules(by_epochs=False)",
        (
            "golden/test_replication.py",
            "unit/replication/test_follower_rules.py",
        ),
    ),
    mutant(
        "end-offset-of-a-smaller-epoch",
        "KAFKA-6361",
        "an epoch that the leader lacks is answered with the next smaller one that it has",
        f"{LOG}/epochs.py",
        "        return self._epochs[i - 1], self._starts[i]",
        "        return epoch, self._starts[i]",
        ("unit/log/test_epochs.py",),
    ),
    mutant(
        "epoch-entries-left-behind",
        "KAFKA-10706",
        "a truncation removes the epochs that begin at its offset",
        f"{LOG}/epochs.py",
        "            keep = bisect_left(self._starts, end_offset)",
        "            keep = bisect_right(self._starts, end_offset)",
        ("unit/log/test_epochs.py",),
    ),
    mutant(
        "answer-from-before-an-epoch-change",
        "KAFKA-7786",
        "an answer counts only in the leader epoch in which it was asked for",
        "fetch/fetcher.py",
        "            if state is not None and fetch.number > state.added_after:\n",
        "            if state is not None:\n",
        ("unit/replication/test_late_answers.py",),
    ),
    mutant(
        "slice-of-what-was-truncated",
        "ours",
        "what a fetch has found is not sent where its log was truncated before it was read",
        f"{LOG}/segment.py",
        "        return min(truncations[self._truncations :]) < end\n",
        "        return False\n",
        ("unit/api/test_stale_slices.py",),
    ),
    mutant(
        "older-epoch-behind-a-newer-one",
        "ours",
        "a follower takes no batch of an older epoch than its last one",
        f"{LOG}/append.py",
        "        if NO_EPOCH < header.partition_leader_epoch < last_epoch:\n",
        "        if False:\n",
        ("unit/log/test_leader_runs.py", "unit/api/test_stale_slices.py"),
    ),
    mutant(
        "deletion-confirmed-by-a-former-leader",
        "ours",
        "DeleteRecords is confirmed by who leads when the wait begins",
        f"{REPLICATION}/delayed_produce.py",
        "            partition.check_epoch(NO_EPOCH, leader_only=True)\n",
        "            partition.check_epoch(NO_EPOCH, leader_only=False)\n",
        ("unit/replication/test_acknowledgements.py",),
    ),
    mutant(
        "high-watermark-before-truncation",
        "KAFKA-14704",
        "a follower takes the leader's high watermark only for what they share",
        "fetch/fetcher.py",
        "        if outcome is FetchOutcome.DIVERGED:\n",
        "        if outcome is FetchOutcome.DIVERGED:\n"
        "            partition.append_as_follower(None, answer.high_watermark, answer.log_start_offset, 0)\n",
        ("unit/replication/test_late_answers.py",),
    ),
    mutant(
        "isr-before-the-epoch-start",
        "KAFKA-7128",
        "who joins the ISR has reached the beginning of the leader's epoch",
        f"{REPLICATION}/leader_state.py",
        "            or follower.log_end_offset < self.epoch_start_offset\n",
        "",
        ("unit/replication/test_leader_state.py",),
    ),
    mutant(
        "high-watermark-from-the-committed-isr",
        "KIP-497",
        "the high watermark waits for who is about to join the ISR",
        f"{REPLICATION}/leader_state.py",
        "                or (follower.caught_up(leader_end, now, self._lag_time_max)"
        " and self._may_join(follower))\n",
        "",
        ("unit/replication/test_leader_state.py",),
    ),
    mutant(
        "high-watermark-below-min-isr",
        "KIP-966",
        "below min.insync.replicas the high watermark does not rise",
        f"{REPLICATION}/leader_state.py",
        "        if self.under_min_isr:\n            return current\n",
        "",
        ("unit/replication/test_leader_state.py",),
    ),
    mutant(
        "stale-incarnation-fetches",
        "KIP-903",
        "a fetch of an earlier incarnation of a broker is refused",
        f"{REPLICATION}/leader_state.py",
        "        if known_epoch is not None and NO_EPOCH < broker_epoch < known_epoch:\n",
        "        if False:\n",
        ("unit/replication/test_leader_state.py",),
    ),
    mutant(
        "unreplicated-marker-ends-a-transaction",
        "KAFKA-5121",
        "a transaction is over for readers once its marker is below the high watermark",
        f"{REPLICATION}/partition.py",
        "        first_open = self.log.first_unstable_offset(high_watermark)\n",
        "        first_open = self.log.first_unstable_offset(self.log.log_end_offset)\n",
        ("unit/replication/test_last_stable_offset.py",),
    ),
    mutant(
        "silent-follower-stays-in-the-isr",
        "gray failure",
        "who does not fetch leaves the ISR, whatever its heartbeats say",
        f"{REPLICATION}/leader_state.py",
        "        return self.log_end_offset == leader_end or now - self.last_caught_up <= lag_time_max\n",
        "        return self.last_caught_up > float('-inf')\n",
        ("unit/replication/test_leader_state.py",),
    ),
    mutant(
        "fetches-without-progress-count",
        "KIP-16",
        "who fetches and never reaches the end is not caught up",
        f"{REPLICATION}/leader_state.py",
        "        if offset >= leader_end:\n            self.last_caught_up = now\n",
        "        if offset >= 0:\n            self.last_caught_up = now\n",
        ("unit/replication/test_leader_state.py",),
    ),
)
