"""The internal topics of coordinators: their names, and which partition has a key.

A group or a transactional id belongs to one partition, chosen by Java's hash of its name; the leader of that
partition coordinates it.
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
"""kraft coordinates no share groups; the name is internal as it is in Kafka."""

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUP_STATE_TOPIC})


def partition_for_key(key: str, partitions: int) -> int:
    """The partition of a group or transactional id, as every Kafka chooses it: the absolute value of the hash
    (0 for the least int), modulo the number of partitions."""
    value = java_string_hash(key)
    return (0 if value == -(2**31) else abs(value)) % partitions


def java_string_hash(text: str) -> int:
    """java.lang.String.hashCode: over UTF-16 code units, in 32-bit two's complement."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
