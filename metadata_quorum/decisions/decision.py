"""What every decision returns: the records that make it true, and what to answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import BrokerRegistration
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import MetadataRecord
from metadata_quorum.protocol.replies import Done, Reply


@dataclass(slots=True)
class Decision:
    """`records` become one batch of the metadata log; `reply` is sent once they are committed."""

    records: list[MetadataRecord] = field(default_factory=list)
    reply: Reply = field(default_factory=Done)


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The broker, if `broker_epoch` is that of its present incarnation. Raises
    `BrokerError`, STALE_BROKER_EPOCH, otherwise."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerError(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}"
        )
    if broker.broker_epoch != broker_epoch:
        raise BrokerError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}",
        )
    return broker
