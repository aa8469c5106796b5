"""The internal topics of coordinators: their names, and which partition has a key.

A group or a transactional id belongs to one partition, chosen by Java's hash of its name; the leader of that
partition coordinates it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
"""kraft coordinates no share groups; the name is internal as it is in Kafka."""

_UNIT: Final = 0xFFFF
_INT: Final = 0xFFFFFFFF
_LONG_BYTES: Final = 256

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUP_STATE_TOPIC})


def partition_for_key(key: str, partitions: int) -> int:
    """The partition of a group or transactional id, as every Kafka chooses it: the absolute value of the hash
    (0 for the least int), modulo the number of partitions."""
    value = java_string_hash(key)
    return (0 if value == -(2**31) else abs(value)) % partitions


def java_string_hash(text: str) -> int:
    """java.lang.String.hashCode: over UTF-16 code units, in 32-bit two's complement."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = _hash_in_order(units) if len(units) < _LONG_BYTES else _hash_in_lanes(units)
    return value - 2**32 if value >= 2**31 else value


def _hash_in_order(units: bytes) -> int:
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & _INT
    return value


def _hash_in_lanes(units: bytes) -> int:
    """The same of a long name: every request of a group has one, of up to 32 KB, and in order that takes
    milliseconds. A large int is taken for lanes of 64 bits, in each of which are four units, and then the
    hash of these. Of the lanes the upper half is folded onto the lower one until one is left. Leading zeros
    change nothing."""
    lanes = 1 << (len(units) // 8).bit_length()
    four, unit, left = int.from_bytes(units), _in_each(lanes, _UNIT), 0
    for shift in (48, 32, 16, 0):
        left = 31 * left + (four >> shift & unit)
    while lanes > 1:
        lanes //= 2
        hashes = _in_each(lanes, _INT)
        left = (pow(31, 4 * lanes, 2**32) * (left >> 64 * lanes) + (left & hashes)) & hashes
    return left


@lru_cache(2 * 16)
def _in_each(lanes: int, bits: int) -> int:
    return int.from_bytes(bits.to_bytes(8) * lanes)
