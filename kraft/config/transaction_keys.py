"""Transactions, and the topic that their coordinator keeps them in."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.config.key import CLUSTER_WIDE, DAY, HOUR, MIB, MINUTE, SECOND, key


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class TransactionKeys:
    """Kafka's TransactionLogConfig and TransactionStateManagerConfig."""

    transaction_max_timeout_ms: int = key(
        15 * MINUTE, "longest transaction timeout that a producer may ask for", minimum=1
    )
    transactional_id_expiration_ms: int = key(
        7 * DAY, "an idle transactional id is forgotten after this", minimum=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        10 * SECOND, "how often transactions that have timed out are looked for", minimum=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        1 * HOUR, "how often idle transactional ids are looked for", minimum=1
    )
    transaction_partition_verification_enable: bool = key(
        True, "a leader asks the coordinator before it appends the first batch of a transaction",
        update=CLUSTER_WIDE,
    )  # fmt: skip
    add_partitions_to_txn_retry_backoff_ms: int = key(
        20,
        "while the producer's last transaction is still ending: pause before a leader asks again, and how "
        "long a coordinator waits for the end before it says so",
        minimum=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = key(100, "a leader stops asking after this")
    transaction_state_log_num_partitions: int = key(50, "partitions of __transaction_state", minimum=1)
    transaction_state_log_replication_factor: int = key(
        3, "replicas of __transaction_state", minimum=1, bits=16
    )
    transaction_state_log_min_isr: int = key(
        2, "in-sync replicas of __transaction_state without which it takes no writes", minimum=1
    )
    transaction_state_log_segment_bytes: int = key(
        100 * MIB, "segment size of __transaction_state", minimum=1
    )
    transaction_state_log_load_buffer_size: int = key(
        5 * MIB, "bytes read at once while transactions are loaded", minimum=1
    )
