"""Messages between the handlers and the wire, whatever their version.

    frame body --decoding.py--> Message --> handler
    frame body <--kio-- kio's struct of that version <--here-- dict <-- handler

A handler knows no versions: it is given a `Message`, which has the fields of all; and of the dict that it
returns the fields are written which exist in the version asked for, while a name that no version knows is
a bug and raises. Both directions exist for requests and for responses, for our own client's sake.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kio.serial import entity_writer
from kio.serial.errors import SerialError

from kraft.wire.decoding import Meter, decode
from kraft.wire.message import MalformedMessage, Message
from kraft.wire.schemas import (
    REQUEST,
    RESPONSE,
    FieldPlan,
    MessageId,
    StructPlan,
    default_in_any_version,
    plan_for,
)

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


class UnencodableMessage(ValueError):
    """Values that the bytes of that API and version have no room for."""


Fields = Mapping[str, Any] | Message
"""What is written: a handler's dict, or a message that came in and goes on."""


def decode_request(
    api_key: int,
    version: int,
    buf: bytes | bytearray | memoryview,
    pos: int = 0,
    meter: Meter | None = None,
) -> Message:
    """Raises `MalformedMessage`, also for what takes more than the meter allows."""
    return decode(MessageId(api_key, REQUEST), version, buf, pos, meter or Meter())


def decode_response(api_key: int, version: int, buf: bytes | bytearray | memoryview, pos: int = 0) -> Message:
    """Raises `MalformedMessage`."""
    return decode(MessageId(api_key, RESPONSE), version, buf, pos, Meter())


def encode_request(api_key: int, version: int, fields: Fields) -> bytes:
    return _encode(MessageId(api_key, REQUEST), version, fields)


def encode_response(api_key: int, version: int, fields: Fields) -> bytes:
    return _encode(MessageId(api_key, RESPONSE), version, fields)


@cache
def response_has(api_key: int, name: str) -> bool:
    """Whether any version's response has a field of that name at its top."""
    try:
        default_in_any_version(MessageId(api_key, RESPONSE), (), name)
    except AttributeError:
        return False
    return True


def _encode(message: MessageId, version: int, fields: Fields) -> bytes:
    plan = plan_for(message, version)
    out = io.BytesIO()
    try:
        entity_writer(plan.kio_class)(out, _to_entity(plan, fields))
    except (SerialError, struct.error, ValueError, TypeError, OverflowError) as error:
        raise UnencodableMessage(
            f"no {plan.kio_class.__name__} of version {version} can say this: {error}"
        ) from error
    return out.getvalue()


_ABSENT: Final = object()


def _to_entity(plan: StructPlan, fields: Fields) -> Any:
    values: Mapping[str, Any] = vars(fields) if isinstance(fields, Message) else fields
    if not values.keys() <= plan.names:
        for name in values.keys() - plan.names:
            default_in_any_version(plan.message, plan.path, name)
    arguments = {}
    for field in plan.fields:
        value = values.get(field.name, _ABSENT)
        arguments[field.kio_name] = _to_kio(field, value)
    return plan.kio_class(**arguments)


def _to_kio(field: FieldPlan, value: Any) -> Any:
    struct = field.struct
    if value is _ABSENT:
        if struct is None or field.is_array or field.default is None:
            return field.kio_default if struct is None else field.default
        return _to_entity(struct, {})
    if value is None:  # a name that nobody gave, for one, and an old version that has no null
        return "" if field.kafka_type == "string" and not field.nullable and not field.is_array else None
    if struct is not None:
        if field.is_array:
            return tuple([_to_entity(struct, each) for each in value])
        return _to_entity(struct, value)
    if field.to_kio is not None:
        return field.to_kio(value)
    # Tuples, because kio leaves out a tagged field that equals its default, and that is a tuple.
    return tuple(value) if field.is_array else value
