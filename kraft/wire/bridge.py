"""Messages between the handlers and the wire, whatever their version.

    frame body --kio--> kio's struct of that version --here--> Message --> handler
    frame body <--kio-- kio's struct of that version <--here-- dict    <-- handler

A handler knows no versions: a `Message` answers for every field that any version has, with Kafka's
default where this one lacks it; and of the dict that a handler returns the fields are written which
exist in the version asked for, while a name that no version knows is a bug and raises.
Both directions exist for requests and for responses, for our own client's sake.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from kraft.wire.schemas import (
    REQUEST,
    RESPONSE,
    FieldPlan,
    MessageId,
    StructPlan,
    default_in_any_version,
    plan_for,
)


class MalformedMessage(ValueError):
    """Bytes that are no message of that API and version."""


class Message:
    """A decoded message or struct: attributes named as in Kafka's schema, in snake case."""

    _message: ClassVar[MessageId]
    _path: ClassVar[tuple[str, ...]]

    def __getattr__(self, name: str) -> Any:
        # Reached only where the version at hand lacks the field.
        if name.startswith("__"):
            raise AttributeError(name)
        value = default_in_any_version(self._message, self._path, name)
        return _default_message(value) if isinstance(value, StructPlan) else value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


Fields = Mapping[str, Any] | Message
"""What is written: a handler's dict, or a message that came in and goes on."""


def decode_request(api_key: int, version: int, buf: bytes | bytearray | memoryview, pos: int = 0) -> Message:
    """Raises `MalformedMessage`; trailing bytes are left alone, as Kafka does."""
    return _decode(MessageId(api_key, REQUEST), version, buf, pos)


def decode_response(api_key: int, version: int, buf: bytes | bytearray | memoryview, pos: int = 0) -> Message:
    return _decode(MessageId(api_key, RESPONSE), version, buf, pos)


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


def _decode(message: MessageId, version: int, buf: bytes | bytearray | memoryview, pos: int) -> Message:
    plan = plan_for(message, version)
    view = memoryview(buf).toreadonly()  # kio refuses writable buffers
    try:
        entity, _ = entity_reader(plan.kio_class)(view, pos)
        return _to_message(plan, entity)
    except (SerialError, ValueError, KeyError, OverflowError) as error:
        # KeyError: kio knows every tag of Kafka's schemas and refuses any other.
        raise MalformedMessage(f"not a {plan.kio_class.__name__} of version {version}: {error}") from error


def _encode(message: MessageId, version: int, fields: Fields) -> bytes:
    plan = plan_for(message, version)
    entity = _to_entity(plan, fields)
    out = io.BytesIO()
    entity_writer(plan.kio_class)(out, entity)
    return out.getvalue()


# ---- kio -> Message ----------------------------------------------------------------------------------


@cache
def _message_class(message: MessageId, path: tuple[str, ...]) -> type[Message]:
    return type("Message", (Message,), {"_message": message, "_path": path})


def _to_message(plan: StructPlan, entity: Any) -> Message:
    result = _message_class(plan.message, plan.path)()
    values = vars(result)
    for field in plan.fields:
        value = getattr(entity, field.kio_name)
        struct = field.struct
        if struct is not None:
            if value is not None:
                value = (
                    [_to_message(struct, each) for each in value]
                    if field.is_array
                    else _to_message(struct, value)
                )
        elif field.from_kio is not None:
            value = field.from_kio(value)
        elif field.is_array and value is not None:
            value = list(value)
        values[field.name] = value
    return result


def _default_message(plan: StructPlan) -> Message:
    result = _message_class(plan.message, plan.path)()
    for field in plan.fields:
        value = field.default
        vars(result)[field.name] = _default_message(value) if isinstance(value, StructPlan) else value
    return result


# ---- dict or Message -> kio --------------------------------------------------------------------------

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
    if value is None:
        return None
    if struct is not None:
        if field.is_array:
            return tuple([_to_entity(struct, each) for each in value])
        return _to_entity(struct, value)
    if field.to_kio is not None:
        return field.to_kio(value)
    # Tuples, because kio leaves out a tagged field that equals its default, and that is a tuple.
    return tuple(value) if field.is_array else value
