"""Blocks of producer ids, given to brokers so that each can hand out single ones by itself."""

from __future__ import annotations

from typing import Final

from metadata_quorum.decisions.decision import Decision, check_broker_epoch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import ProducerIdsRecord
from metadata_quorum.protocol.commands import AllocateProducerIds
from metadata_quorum.protocol.replies import ProducerIdBlock

BLOCK_SIZE: Final = 1000
_LAST: Final = 2**63 - 1


def allocate_producer_ids(image: MetadataImage, command: AllocateProducerIds) -> Decision:
    """The next block, which no other broker gets. Raises `BrokerError`."""
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    first = image.next_producer_id
    if first > _LAST - BLOCK_SIZE:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used up")
    record = ProducerIdsRecord(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        next_producer_id=first + BLOCK_SIZE,
    )
    return Decision([record], ProducerIdBlock(first, BLOCK_SIZE))
