"""ClientEnvelope: a produce or a fetch that a node sends to a leader in the name of a reader of its console.

    console (http/client_requests) -> ClientEnvelope -> leader, here -> Produce or Fetch, as that client

What Envelope is for controllers, an API of ours between brokers: the client's own rights and quotas count, as
if it had come itself. Its connection is another node's, so it is not muted: the answer tells how long the
client must pause. The answer is that of the enclosed request, as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kraft.api import fetch, produce
from kraft.api.authz.checks import InHandler
from kraft.api.authz.raw_requests import is_cluster_action_authorized
from kraft.api.context import BrokerContext
from kraft.api.envelope import ENVELOPE_VERSION, decode_address, decode_principal
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, RawHandler
from kraft.net.connection import ProtocolError
from kraft.net.peer import Reply
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Meter, decode_request
from kraft.wire.header import read_request_header
from metadata_quorum.foundation.errors import BrokerError

VERSION: Final = 0
MOST_BYTES: Final = 1_000_000

ENCLOSED: Final[Mapping[tuple[int, int], RawHandler[BrokerContext]]] = {
    (ApiKey.PRODUCE, 8): produce.handle,
    (ApiKey.FETCH, 11): fetch.handle,
}
"""By version: these have a response header without tags, as the envelope's own."""


def handle(broker: BrokerContext, ctx: RequestContext, body: memoryview) -> Reply:
    """Raises `ProtocolError` for anybody but a node: the API is ours, and has no error response."""
    if not is_cluster_action_authorized(broker.node, ctx):
        raise ProtocolError(f"ClientEnvelope of {ctx.principal}, who may not CLUSTER_ACTION")
    if len(body) > MOST_BYTES:
        raise ProtocolError(f"ClientEnvelope of {len(body)} bytes")
    envelope = decode_request(ApiKey.ENVELOPE, ENVELOPE_VERSION, body, meter=Meter(MOST_BYTES))
    frame = memoryview(bytearray(envelope.request_data))  # a produce writes its offsets into it
    header = read_request_header(frame)
    serve = ENCLOSED.get((header.api_key, header.version))
    if serve is None:
        raise ProtocolError(f"API {header.api_key} v{header.version} in a ClientEnvelope")
    try:
        client = replace(
            ctx,
            api_key=ApiKey(header.api_key),
            version=header.version,
            client_id=header.client_id,
            principal=decode_principal(envelope.request_principal or b""),
            forwarded_for=decode_address(envelope.client_host_address),
        )
    except BrokerError as error:
        raise ProtocolError(f"ClientEnvelope: {error}") from None
    broker.node.requests.enclosed(client.api_key)
    return serve(broker, client, frame[header.body :])


ROWS: Final = (
    ApiRow(
        ApiKey.CLIENT_ENVELOPE,
        (VERSION, VERSION),
        (InHandler("ClusterAction on Cluster"),),
        raw_broker=handle,
        internal=True,
    ),
)
