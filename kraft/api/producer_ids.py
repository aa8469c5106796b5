"""InitProducerId, for idempotent producers: an id of their own, and epoch 0.

Transactional producers need a transaction coordinator, which this broker does not have yet.
"""

from __future__ import annotations

from typing import Final

from kraft.api.row import BROKER, ApiRow, Response
from kraft.context import NodeContext, RequestContext
from kraft.wire.bridge import Message
from metadata_quorum.errors import BrokerError, ErrorCode


async def handle(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if node.producer_ids is None:
        raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE)
    # Kafka too gives a new id to an idempotent producer that already has one.
    return {
        "error_code": int(ErrorCode.NONE),
        "producer_id": await node.producer_ids.next_id(),
        "producer_epoch": 0,
    }


def error(request: Message, code: ErrorCode, message: str) -> Response:
    retriable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # what clients repeat an InitProducerId for
    known = retriable if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER) else code
    return {"error_code": int(known), "producer_id": -1, "producer_epoch": -1}


ROWS: Final = (ApiRow(22, "InitProducerId", 0, 5, BROKER, handle, on_error=error),)
