"""Mutants of producers, transactions, groups."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

LOG: Final = "data_plane/log"
TRANSACTIONS: Final = "data_plane/coordinator/transactions/transaction_state_manager.py"
OFFSETS: Final = "data_plane/coordinator/groups/offsets.py"

EXACTLY_ONCE: Final = (
    mutant(
        "out-of-order-in-place-of-a-duplicate",
        "KIP-98",
        "a repeated batch is answered with its first offset",
        f"{LOG}/producers.py",
        "        for batch in self.batches:\n            if batch.last_sequence == last",
        "        for batch in ():\n            if batch.last_sequence == last",
        ("unit/log/test_producers.py",),
    ),
    mutant(
        "abort-ignores-the-epoch",
        "KIP-890",
        "a marker of an earlier epoch ends nothing",
        f"{LOG}/producers.py",
        "            return\n        if header.producer_epoch < state.epoch:\n            raise BrokerError(",
        "            return\n        if False:\n            raise BrokerError(",
        ("unit/log/test_producers.py",),
    ),
    mutant(
        "beside-an-open-transaction",
        "ours",
        "nothing is written beside a producer's open transaction, in a newer epoch neither",
        f"{LOG}/producers.py",
        "        if state.current_txn_first_offset is not None and not header.is_transactional:\n",
        "        if (\n            header.producer_epoch == state.epoch\n"
        "            and state.current_txn_first_offset is not None\n"
        "            and not header.is_transactional\n        ):\n",
        ("unit/log/test_producers.py",),
    ),
    mutant(
        "zombie-batch-takes-the-epoch-back",
        "ours",
        "a batch of an earlier epoch changes no state",
        f"{LOG}/producers.py",
        "            if header.producer_epoch < state.epoch:\n"
        "                return  # a zombie's batch that an old leader let in; the newer epoch stays\n",
        "",
        ("unit/log/test_producers.py",),
    ),
    mutant(
        "open-transaction-forgotten-at-the-start",
        "ours",
        "a snapshot's open transactions hold the last stable offset",
        f"{LOG}/producers.py",
        "            if state.current_txn_first_offset is not None:\n                self._ongoing = ",
        "            if False:\n                self._ongoing = ",
        ("unit/log/test_producers.py",),
    ),
    mutant(
        "late-produce-after-the-abort",
        "KIP-890",
        "a leader appends only to a transaction that is open",
        TRANSACTIONS,
        "        there = known.partitions if known.state is ONGOING else frozenset()\n",
        "        there = frozenset(partitions)\n",
        ("golden/test_transactions.py",),
    ),
    mutant(
        "delayed-end-of-the-last-transaction",
        "KIP-890",
        "every transaction has an epoch of its own",
        TRANSACTIONS,
        "producer_epoch=known.producer_epoch + 1,\n            former_epoch=known.producer_epoch,\n",
        "producer_epoch=known.producer_epoch,\n            former_epoch=known.producer_epoch,\n",
        ("golden/test_transactions.py",),
    ),
    mutant(
        "stuck-in-prepare-commit",
        "KAFKA-16352",
        "a new coordinator writes the markers that are owed",
        TRANSACTIONS,
        "        return (name for name in self._unfinished if self._transactions[name].state in PREPARED)\n",
        "        return iter(())\n",
        ("golden/test_transactions.py",),
    ),
    mutant(
        "timeout-does-not-fence",
        "KIP-98",
        "who is aborted by the timeout is fenced",
        TRANSACTIONS,
        "        producer_epoch=min(known.producer_epoch, LAST_EPOCH) + 1,\n",
        "        producer_epoch=known.producer_epoch,\n",
        ("golden/test_transactions.py",),
    ),
    mutant(
        "offsets-of-an-aborted-transaction-stick",
        "KIP-98",
        "a group's offsets in a transaction count where it commits",
        OFFSETS,
        "            if commit:\n                self._supersede(place, written)\n",
        "            if True:\n                self._supersede(place, written)\n",
        (
            "unit/groups/test_held_offsets.py",
            "unit/groups/test_offsets.py",
        ),
    ),
    mutant(
        "offsets-expired-during-a-rebalance",
        "KAFKA-13636",
        "a group that rebalances keeps its offsets",
        OFFSETS,
        "kept.commit_timestamp_ms if stable and reads is not None and topic not in reads else None",
        "kept.commit_timestamp_ms if reads is None or topic not in reads else None",
        ("unit/groups/test_offsets.py",),
    ),
    mutant(
        "commit-of-a-member-that-is-gone",
        "ours",
        "a commit of one who is no member any more is refused",
        "data_plane/coordinator/groups/classic/request_checks.py",
        "    completing = group.state is ClassicGroupState.COMPLETING_REBALANCE\n",
        "    if member is ErrorCode.UNKNOWN_MEMBER_ID:\n"
        "        return ErrorCode.NONE\n"
        "    completing = group.state is ClassicGroupState.COMPLETING_REBALANCE\n",
        ("unit/simulator/test_late_commits.py",),
    ),
    mutant(
        "commit-of-an-old-generation",
        "ours",
        "a commit of an earlier generation is refused",
        "data_plane/coordinator/groups/classic/request_checks.py",
        "        return ErrorCode.ILLEGAL_GENERATION\n",
        "        return ErrorCode.NONE\n",
        (
            "unit/groups/test_request_checks.py",
            "golden/test_classic_groups.py",
        ),
    ),
    mutant(
        "unknown-producer-begins-anywhere",
        "ours",
        "a transaction's first batch has the sequence that its producer began with",
        f"{LOG}/producers.py",
        "        if header.base_sequence > first:\n",
        "        if False:\n",
        ("unit/api/test_produce_queue.py",),
    ),
    mutant(
        "group-too-large-to-expire",
        "ours",
        "a group with more offsets than a sweep takes is expired piece by piece",
        "data_plane/coordinator/groups/group_metadata_manager.py",
        "            expired_now = list(islice(expired, at_once))\n",
        "            expired_now = list(expired)\n"
        "            if len(expired_now) > at_once:\n"
        "                break\n",
        ("unit/groups/test_offsets.py",),
    ),
    mutant(
        "coordinator-of-a-failed-directory",
        "ours",
        "a coordinator resigns when its partition's log directory fails",
        "kraft/node/metadata_publisher.py",
        "            partition.on_stopped = self._resign  # its directory fails",
        "            # its directory fails",
        ("unit/node/test_metadata_publisher.py",),
    ),
    mutant(
        "timeout-of-the-producer-before",
        "ours",
        "a transaction has the timeout of the producer that came last",
        "data_plane/coordinator/transactions/transaction_state_manager.py",
        "            former_epoch=former_epoch,\n            timeout_ms=timeout_ms,\n",
        "            former_epoch=former_epoch,\n",
        ("unit/transactions/test_transaction_state_manager.py",),
    ),
)
