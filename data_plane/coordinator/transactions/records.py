"""The records of `__transaction_state`, in Apache Kafka's own bytes.

    TransactionLogKey    version int16 (0) | transactional id string (int16 length)
    TransactionLogValue  version int16 (1) | flexible fields as `StoredTransaction` names them

One value per transactional id, the whole state of its transaction; a null value is a tombstone.
Version 0 of the value (what a cluster with transaction.version 0 has written) is only read: the same
fields without tags, strings and arrays led by an int16 and an int32.

Path of the data: transaction_state_manager.py -> here -> coordinator/runtime.py -> partition log.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

from metadata_quorum.foundation.batch import NO_PRODUCER_ID
from metadata_quorum.foundation.codec import (
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    Tag,
)
from metadata_quorum.foundation.model import TopicPartition, by_topic
from metadata_quorum.foundation.primitives import INT16, Reader, compact_string, string, uvarint

_V0_HEAD: Final = struct.Struct(
    ">q"  # producer id
    "h"  # producer epoch
    "i"  # timeout in ms
    "b"  # state
)
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1

NO_PRODUCER_EPOCH: Final = -1


class TransactionState(IntEnum):
    """Kafka's numbers; `label` is the name that tools print."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


class _PartitionsByTopic:
    """Structs of a topic and an array of its partitions. Written and read by hand: there may be tens
    of thousands, and all are written anew with each that is added."""

    def write(self, out: bytearray, value: Mapping[str, Sequence[int]] | None, version: int) -> None:
        if value is None:
            out.append(0)
            return
        out += uvarint(len(value) + 1)
        for topic in sorted(value):
            numbers = sorted(value[topic])
            out += compact_string(topic)
            out += uvarint(len(numbers) + 1)
            out += struct.pack(f">{len(numbers)}i", *numbers)
            out.append(0)  # no tagged fields

    def read(self, reader: Reader, version: int) -> Mapping[str, Sequence[int]] | None:
        """Raises ValueError."""
        count = reader.uvarint() - 1
        if count < 0:
            return None
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(count):
            topic, size = reader.compact_string(), reader.uvarint() - 1
            if size < 0:
                raise ValueError(f"no partitions of {topic}")
            numbers = struct.unpack(f">{size}i", reader.take(4 * size))
            found[topic] = found.get(topic, ()) + numbers
            reader.tagged_fields()
        return found


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """Kafka's TransactionLogValue, version 1."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: Annotated[Mapping[str, Sequence[int]] | None, _PartitionsByTopic()]
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    previous_producer_id: Annotated[Int64, Tag(0)] = NO_PRODUCER_ID
    next_producer_id: Annotated[Int64, Tag(1)] = NO_PRODUCER_ID
    client_transaction_version: Annotated[Int16, Tag(2)] = 0
    next_producer_epoch: Annotated[Int16, Tag(3)] = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The coordinator's state of one transactional id. Times in ms since the epoch, -1: none."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = -1
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    """transaction.version of the client: from 2 on every transaction has an epoch of its own."""
    former_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump that the producer itself requested, or that a timeout made, until it
    begins a transaction: of a repeated request, or of one that hears of the bump. Not stored, as in Kafka."""


class TransactionRecord(NamedTuple):
    """`value` None: the transactional id has expired."""

    transactional_id: str
    value: TransactionMetadata | None


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they lie in the log."""
    key = INT16.pack(_KEY_VERSION) + string(record.transactional_id)
    if record.value is None:
        return key, None
    out = bytearray(INT16.pack(_VALUE_VERSION))
    Schema.of(StoredTransaction).write(out, _stored(record.value), _VALUE_VERSION)
    return key, bytes(out)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record behind the bytes; None for a key of another kind. Raises ValueError."""
    if len(key) < 4 or INT16.unpack_from(key)[0] != _KEY_VERSION:
        return None
    length = INT16.unpack_from(key, 2)[0]
    if length != len(key) - 4:
        raise ValueError(f"transactional id of {length} bytes in a key of {len(key)}")
    name = key[4:].decode()
    if value is None:
        return TransactionRecord(name, None)
    version = INT16.unpack_from(value)[0] if len(value) >= 2 else -1
    if version == 0:
        return TransactionRecord(name, _live(_read_version_0(Reader(value, 2))))
    if version != _VALUE_VERSION:
        raise ValueError(f"value of version {version} in __transaction_state is not known")
    return TransactionRecord(name, _live(Schema.of(StoredTransaction).read(Reader(value, 2), version)))


def _read_version_0(reader: Reader) -> StoredTransaction:
    producer_id, epoch, timeout_ms, status = _V0_HEAD.unpack(reader.take(_V0_HEAD.size))
    topics: dict[str, list[int]] = {}
    for _ in range(reader.int32()):
        topic, count = reader.string(), reader.int32()
        topics.setdefault(topic, []).extend(reader.int32() for _ in range(count))
    updated_ms, started_ms = reader.int64(), reader.int64()
    return StoredTransaction(producer_id, epoch, timeout_ms, status, topics, updated_ms, started_ms)


def _stored(transaction: TransactionMetadata) -> StoredTransaction:
    return StoredTransaction(
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state,
        None if transaction.state is TransactionState.EMPTY else by_topic(transaction.partitions),
        transaction.updated_ms,
        transaction.started_ms,
        transaction.previous_producer_id,
        transaction.next_producer_id,
        transaction.client_version,
        transaction.next_producer_epoch,
    )


def _live(stored: StoredTransaction) -> TransactionMetadata:
    return TransactionMetadata(
        stored.producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        TransactionState(stored.transaction_status),
        frozenset(
            TopicPartition(topic, partition)
            for topic, numbers in (stored.transaction_partitions or {}).items()
            for partition in numbers
        ),
        stored.transaction_last_update_timestamp_ms,
        stored.transaction_start_timestamp_ms,
        stored.previous_producer_id,
        stored.next_producer_id,
        stored.next_producer_epoch,
        stored.client_transaction_version,
    )
