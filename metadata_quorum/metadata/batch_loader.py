"""From batches of `__cluster_metadata` to the next image, on nodes that did not decide them.

    fetched or stored batch -> decode -> records -> MetadataDelta -> image

A metadata transaction (KIP-868), which only Apache Kafka's controllers write, takes effect when it ends:
until then its records are held. The caller keeps them from one batch to the next.
"""

from __future__ import annotations

from metadata_quorum.foundation.batch import BatchHeader, decode_batch
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode,
)

Transaction = tuple[MetadataRecord, ...] | None
"""The records so far of a metadata transaction that has not ended; None: there is none."""


def load_batch(
    image: MetadataImage,
    transaction: Transaction,
    batches: bytes | memoryview,
    position: int,
    header: BatchHeader,
) -> tuple[MetadataDelta, MetadataImage, Transaction]:
    """The image after one batch, and the transaction that it leaves open. Raises `ValueError`, with the
    offset of the record that cannot be read."""
    delta = MetadataDelta(image)
    delta.offset = header.last_offset
    delta.epoch = header.partition_leader_epoch
    delta.timestamp_ms = header.max_timestamp
    if header.is_control:
        return delta, delta.apply(), transaction
    held = None if transaction is None else list(transaction)
    for stored in decode_batch(batches, position):
        if stored.offset <= image.offset:
            continue
        try:
            record = decode(stored.value or b"")
        except ValueError as error:
            raise ValueError(f"the metadata record at offset {stored.offset}: {error}") from None
        if isinstance(record, BeginTransactionRecord):
            held = []
        elif isinstance(record, AbortTransactionRecord):
            held = None
        elif isinstance(record, EndTransactionRecord):
            for each in held or ():
                delta.replay(each)
            held = None
        elif held is None:
            delta.replay(record)
        else:
            held.append(record)
    return delta, delta.apply(), None if held is None else tuple(held)
