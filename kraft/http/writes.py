"""What the console may change, where `kraft.http.writes` allows it: messages are produced, faults are made.

    GET  /api/v1/writes                                      what is allowed, and the token for it
    POST /api/v1/topics/T/partitions/0/messages              one message
    POST /api/v1/faults                                      one fault (faults.py)

No other site can do it in the name of a reader of the console: a request says that it comes from this very
page (Origin), has JSON in it (no form sends that), and the token, which other sites cannot read. It is made
for one principal, by a key of this process. Whether that one has the right, the cluster's own ACLs decide.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from data_plane.coordinator.topics import INTERNAL_TOPICS
from kraft.api.context import NodeContext
from kraft.http.api import (
    BASE,
    PARTITION_MESSAGES,
    Asked,
    Route,
    Service,
    client_of,
    known_partition,
)
from kraft.http.client_requests import Client
from kraft.http.faults import run_fault, state_of_faults
from kraft.http.login import Visitor
from kraft.http.refused import Refused
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from aiohttp import web

MAX_BODY_BYTES: Final = 64 * 1024
BODY_S: Final = 10.0
TOKEN_HEADER: Final = "X-Kraft-Token"
_ACKS_ALL: Final = -1
_PRODUCE_VERSION: Final = 8
_TIMEOUT_S: Final = 10.0

Json = dict[str, Any]


class Writes:
    """Checks the requests that write through one node."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._key = node.random.randbytes(32)

    @property
    def allowed(self) -> bool:
        return self._node.config.kraft_http_writes

    def token(self, visitor: Visitor) -> str:
        return hmac.digest(self._key, visitor.principal.encode(), "sha256").hex()

    async def body(self, request: web.BaseRequest, visitor: Visitor) -> Json:
        """The body of a request that comes from our page. Raises `Refused`."""
        if not self.allowed:
            raise Refused(405, "this console only reads; kraft.http.writes=true lets it write")
        headers = request.headers
        if headers.get("Origin") != f"http://{headers.get('Host')}":
            raise Refused(
                403, "it does not come from the console's own page: Origin is to be http:// and Host"
            )
        if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise Refused(403, "it comes from another site")
        token = headers.get(TOKEN_HEADER, "").encode(errors="surrogateescape")  # bytes that are no UTF-8
        if not hmac.compare_digest(token, self.token(visitor).encode()):
            raise Refused(403, f"{TOKEN_HEADER} is not that of {BASE}/writes")
        if request.content_type != "application/json":
            raise Refused(415, "only application/json")
        if "Content-Encoding" in headers:
            raise Refused(415, "not compressed: a small body may be a large one")
        if request.content_length is None or request.content_length > MAX_BODY_BYTES:
            raise Refused(413, f"Content-Length is to be {MAX_BODY_BYTES} at most")
        try:
            async with asyncio.timeout(BODY_S):
                received = await request.read()
        except TimeoutError:
            raise Refused(408, f"its body did not come in {BODY_S:g} s") from None
        try:
            body = json.loads(received)
        except (ValueError, RecursionError):
            raise Refused(400, "this is no JSON") from None
        if not isinstance(body, dict):
            raise Refused(400, "this is no JSON object")
        return body


async def what_is_allowed(writes: Writes, service: Service, visitor: Visitor) -> Json:
    """What the visitor may do, so that the page shows no more than that."""
    if not writes.allowed:
        return {"produce": False, "faults": None, "token": None}
    faults = await state_of_faults(service.sources.node) if visitor.may_alter_cluster() else None
    return {"produce": service.sources.broker is not None, "faults": faults, "token": writes.token(visitor)}


# ---- one message ------------------------------------------------------------------------------------


async def _produce(service: Service, asked: Asked) -> Json:
    tp = known_partition(service, asked)
    if not asked.visitor.may_write_topic(tp.topic):
        raise Refused(403, f"{asked.visitor.principal} may not WRITE to topic {tp.topic}")
    if tp.topic in INTERNAL_TOPICS:
        raise Refused(403, f"{tp.topic} is written by its coordinators only")
    body = asked.body
    record = Record(
        timestamp=service.sources.node.now_ms(),
        key=_bytes(body, "key"),
        value=_bytes(body, "value"),
        headers=_headers(body.get("headers", {})),
    )
    offset, pause_ms = await _append(client_of(service, asked), tp, encode_batch([record]))
    return {"topic": tp.topic, "partition": tp.partition, "offset": offset, "throttle_time_ms": pause_ms}


def _bytes(body: Mapping[str, Any], name: str) -> bytes | None:
    text = body.get(name)
    if text is None:
        return None
    return _encoded(text, name)


def _encoded(text: object, name: str) -> bytes:
    if not isinstance(text, str):
        raise Refused(400, f"{name} is to be text, or null")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refused(400, f"{name} is no text") from None


def _headers(given: object) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(given, dict):
        raise Refused(400, "headers are to be an object of texts")
    for name in given:
        _encoded(name, "a header's name")
    return tuple((name, None if value is None else _encoded(value, name)) for name, value in given.items())


async def _append(client: Client, tp: TopicPartition, records: bytes) -> tuple[int, int]:
    """At its leader, with acks=all; its offset, and for how many ms the client must pause. Raises `Refused`,
    BrokerError, OSError."""
    registration = client.broker.node.image.partition(tp)
    if registration is None or registration.leader == NO_LEADER:
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
    fields = {
        "transactional_id": None,
        "acks": _ACKS_ALL,
        "timeout_ms": int(_TIMEOUT_S * 1000),
        "topic_data": [{"name": tp.topic, "partition_data": [{"index": tp.partition, "records": records}]}],
    }
    answer = await client.ask(registration.leader, ApiKey.PRODUCE, _PRODUCE_VERSION, fields, _TIMEOUT_S)
    (answered,) = answer.responses[0].partition_responses
    if answered.error_code:
        raise BrokerError(ErrorCode(answered.error_code), answered.error_message or "")
    return int(answered.base_offset), int(answer.throttle_time_ms)


# ---- one fault --------------------------------------------------------------------------------------


async def _fault(service: Service, asked: Asked) -> Json:
    if not asked.visitor.may_alter_cluster():
        raise Refused(403, f"{asked.visitor.principal} may not ALTER the cluster")
    return await run_fault(service.sources.node, asked.body)


ROUTES: Final = (
    Route(
        PARTITION_MESSAGES,
        "Append one message: key, value and headers are text or null.",
        _produce,
    ),
    Route(
        f"{BASE}/faults",
        "Make a fault, heal, or list: {action: cut, slow, heal, list, with link: 2>1; kill, pause, resume, "
        "start, with node: 2}.",
        _fault,
    ),
)
"""The routes that change something, by POST."""
