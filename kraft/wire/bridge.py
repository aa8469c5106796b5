"""Messages between the handlers and the wire, whatever their version.

    frame body --decoding.py--> Message --> handler
    frame body <--encoding.py-- dict <----- handler

A handler knows no versions: it is given a `Message`, which has the fields of all; and of the dict that it
returns the fields are written which exist in the version asked for, while a name that no version knows is
a bug and raises. Both directions exist for requests and for responses, for our own client's sake.
"""

from __future__ import annotations

from functools import cache

from kraft.wire.api_keys import ApiKey
from kraft.wire.decoding import Meter, decode
from kraft.wire.encoding import Fields, UnencodableMessage, encode
from kraft.wire.message import MalformedMessage, Message
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
    api_key: ApiKey, version: int, buf: bytes | bytearray | memoryview, pos: int = 0
) -> Message:
    """Raises `MalformedMessage`."""
    return decode(MessageId(api_key, RESPONSE), version, buf, pos, Meter())


def encode_request(api_key: ApiKey, version: int, fields: Fields) -> bytes:
    """Raises `UnencodableMessage`."""
    return encode(MessageId(api_key, REQUEST), version, fields)


def encode_response(api_key: ApiKey, version: int, fields: Fields) -> bytes:
    """Raises `UnencodableMessage`."""
    return encode(MessageId(api_key, RESPONSE), version, fields)


@cache
def response_has(api_key: ApiKey, name: str) -> bool:
    """Whether responses have a field of that name at their top. No version but the newest is looked at: to
    load the schemas of all takes up to a tenth of a second, and none of these fields has ever gone."""
    return name in plan_for(MessageId(api_key, RESPONSE), versions_of(api_key)[-1]).names
