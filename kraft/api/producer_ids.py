"""InitProducerId: an id for an idempotent producer; id and epoch for a transactional one.

An idempotent producer gets an id of its own, from any broker. A transactional one asks the coordinator of its
transactional id, which fences earlier producers of that id (data_plane/coordinator/transactions).
"""

from __future__ import annotations

from typing import Final

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import NO_PRODUCER_EPOCH
from kraft.api.authz.group_checks import init_producer_id
from kraft.api.context import BrokerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.transactions import error_for_version
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.batch import NO_PRODUCER_ID
from metadata_quorum.foundation.errors import BrokerError, ErrorCode


async def handle(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    expected = _expected(request)
    if request.transactional_id is None:
        # Kafka too gives a new id to an idempotent producer that already has one.
        return _response(ProducerIdAndEpoch(await broker.producer_ids.next_id(), 0))
    try:
        return _response(
            await broker.transaction_coordinator.init_producer_id(
                request.transactional_id, request.transaction_timeout_ms, expected
            )
        )
    except BrokerError as error:
        raise BrokerError(error_for_version(ctx, error.code), error.message) from None


def _expected(request: Message) -> ProducerIdAndEpoch | None:
    """The id and epoch that the producer has, if it continues after an error."""
    missing = (request.producer_id == NO_PRODUCER_ID, request.producer_epoch == NO_PRODUCER_EPOCH)
    if all(missing):
        return None
    if any(missing):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    return ProducerIdAndEpoch(request.producer_id, request.producer_epoch)


def _response(producer: ProducerIdAndEpoch) -> Response:
    return {
        "error_code": int(ErrorCode.NONE),
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


def error(request: Message, code: ErrorCode, message: str) -> Response:
    retriable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # what clients repeat an InitProducerId for
    known = retriable if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER) else code
    return {"error_code": int(known), "producer_id": -1, "producer_epoch": -1}


ROWS: Final = (
    ApiRow(
        ApiKey.INIT_PRODUCER_ID, (0, 5), (init_producer_id,), broker=handle, on_error=error, concurrent=True
    ),
)
