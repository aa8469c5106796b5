"""Messages between the handlers and the wire, in any version.

    frame body --decoding.py--> Message --> handler
    frame body <--encoding.py-- dict <----- handler

A handler does not depend on versions: it gets a `Message`, which has the fields of all; of the dict that it
returns, the fields of the response's version are written, while a name that no version has is a bug and
raises. Both directions exist for requests and for responses, because our own client needs them.
"""

from __future__ import annotations

from functools import cache

from kraft.wire.api_keys import ApiKey
from kraft.wire.decoding import Meter, decode, reader_of
from kraft.wire.encoding import Fields, encode, writer_of
from kraft.wire.malformed import MalformedMessage, UnencodableMessage
from kraft.wire.message import Message, replaced
from kraft.wire.schemas import REQUEST, RESPONSE, MessageId, plan_for, versions_of

__all__ = [
    "Fields",
    "MalformedMessage",
    "Message",
    "Meter",
    "UnencodableMessage",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "replaced",
    "response_has",
]


def decode_request(
    api_key: ApiKey,
    version: int,
    buf: bytes | bytearray | memoryview,
    pos: int = 0,
    meter: Meter | None = None,
) -> Message:
    """Raises `MalformedMessage`, also for what takes more than the meter allows."""
    return decode(MessageId(api_key, REQUEST), version, buf, pos, meter or Meter())


def decode_response(
    api_key: ApiKey,
    version: int,
    buf: bytes | bytearray | memoryview,
    pos: int = 0,
    meter: Meter | None = None,
) -> Message:
    """As `decode_request`."""
    return decode(MessageId(api_key, RESPONSE), version, buf, pos, meter or Meter())


def encode_request(api_key: ApiKey, version: int, fields: Fields) -> bytes:
    """Raises `UnencodableMessage`."""
    return encode(MessageId(api_key, REQUEST), version, fields)


def encode_response(api_key: ApiKey, version: int, fields: Fields) -> bytes:
    """Raises `UnencodableMessage`."""
    return encode(MessageId(api_key, RESPONSE), version, fields)


def load_schemas(api_key: ApiKey, version: int) -> None:
    """Load what serving a request of that version takes: it imports modules of kio's, and blocks."""
    request, response = MessageId(api_key, REQUEST), MessageId(api_key, RESPONSE)
    reader_of(request, version)
    writer_of(response, version)
    for message in (request, response):  # the newest has the defaults of most fields that others lack
        plan_for(message, versions_of(api_key)[-1])


@cache
def response_has(api_key: ApiKey, name: str) -> bool:
    """Whether responses have a field of that name at their top. Only the newest version is checked: to
    load the schemas of all takes up to 0.1 s, and none of these fields has ever been removed."""
    return name in plan_for(MessageId(api_key, RESPONSE), versions_of(api_key)[-1]).names
