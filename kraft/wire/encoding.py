"""Kafka's messages, written as their schema says: one writer per message and version, made from its plan.

    handler's dict, or a Message that is forwarded -> writer of that struct -> bytes

Of a struct the fields of the version are written, with their default where there is no value. A tagged
field is left out where its bytes are those of its default. Layouts: see
decoding.py and foundation/primitives.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from kraft.wire.limits import shortened
from kraft.wire.malformed import UnencodableMessage
from kraft.wire.message import Message, default_value
from kraft.wire.schemas import FieldPlan, MessageId, StructPlan, default_in_any_version, plan_for
from metadata_quorum.foundation.primitives import INT16, INT32, MAX_STRING_BYTES, uvarint

Fields = Mapping[str, Any] | Message
"""What is written: a handler's dict, or a received message that is forwarded."""


Write = Callable[[bytearray, Any], None]
"""Appends a value."""

_ABSENT: Final = object()
NO_UUID: Final = bytes(16)
"""What None is written as, as by kio."""


def encode(message: MessageId, version: int, fields: Fields) -> bytes:
    """Raises `UnencodableMessage`; `AttributeError` for a field that no version knows."""
    out = bytearray()
    try:
        writer_of(message, version)(out, fields)
    except (struct.error, ValueError, TypeError) as error:
        name = plan_for(message, version).kio_class.__name__
        raise UnencodableMessage(f"no {name} of version {version} can say this: {error}") from error
    return bytes(out)


@cache
def writer_of(message: MessageId, version: int) -> Write:
    """Its first call for a version imports the schema."""
    return _struct_writer(plan_for(message, version))


# ---- structs -----------------------------------------------------------------------------------------


def _struct_writer(plan: StructPlan) -> Write:
    always = [_always(field, plan) for field in plan.fields if field.tag is None]
    optional = sorted((field for field in plan.fields if field.tag is not None), key=lambda f: f.tag or 0)
    tagged = [(field.tag or 0, *_always(field, plan)) for field in optional]
    names = plan.names

    def write(out: bytearray, fields: Fields) -> None:
        values = vars(fields) if isinstance(fields, Message) else fields
        if not values.keys() <= names:
            _refuse_unknown(plan, values)
        for name, write_field, default in always:
            value = values.get(name, _ABSENT)
            if value is _ABSENT:
                out += default
            else:
                write_field(out, value)
        if tagged:
            _write_tags(out, tagged, values)

    def write_with_no_tags(out: bytearray, fields: Fields) -> None:
        write(out, fields)
        out.append(0)

    return write_with_no_tags if plan.flexible and not tagged else write


def _always(field: FieldPlan, plan: StructPlan) -> tuple[str, Write, bytes]:
    """A field's name and writer, and its bytes where there is no value."""
    write = _field_writer(field, plan)
    default = bytearray()
    write(default, default_value(field))
    return field.name, write, bytes(default)


def _write_tags(
    out: bytearray, tagged: list[tuple[int, str, Write, bytes]], values: Mapping[str, Any]
) -> None:
    count, tags = 0, bytearray()
    for tag, name, write_field, default in tagged:
        if name in values:
            data = bytearray()
            write_field(data, values[name])
            if data != default:
                count += 1
                tags += uvarint(tag) + uvarint(len(data)) + data
    out += uvarint(count)
    out += tags


def _refuse_unknown(plan: StructPlan, values: Mapping[str, Any]) -> None:
    for name in values.keys() - plan.names:
        default_in_any_version(plan.message, plan.path, name)  # raises, where no version has it


def _field_writer(field: FieldPlan, owner: StructPlan) -> Write:
    if field.struct is not None:
        write = _struct_writer(field.struct)
        if not field.is_array:
            return _nullable(write) if field.nullable else write
    else:
        write = _VALUES.get(field.kafka_type) or _text_or_bytes(field, owner)
    return _array(write, owner, field) if field.is_array else write


def _nullable(write: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable


def _array(write: Write, owner: StructPlan, field: FieldPlan) -> Write:
    flexible = owner.flexible
    empty = uvarint(1) if flexible else INT32.pack(0)
    null = (uvarint(0) if flexible else INT32.pack(-1)) if field.nullable else empty

    def write_array(out: bytearray, items: Any) -> None:
        if items is None:
            out += null
            return
        if not isinstance(items, list | tuple):  # a generator, or the view of a dict
            items = list(items)
        count = len(items)
        out += uvarint(count + 1) if flexible else INT32.pack(count)
        for item in items:
            write(out, item)

    return write_array


# ---- values ------------------------------------------------------------------------------------------


def _number(letter: str) -> Write:
    pack = struct.Struct(">" + letter).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _milliseconds(letter: str) -> Write:
    pack = struct.Struct(">" + letter).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(int(value))

    return write


def _write_uuid(out: bytearray, value: Any) -> None:
    out += NO_UUID if value is None else value.bytes


_VALUES: Final[Mapping[str, Write]] = {
    "bool": _number("?"),
    "int8": _number("b"),
    "int16": _number("h"),
    "int32": _number("i"),
    "int64": _number("q"),
    "uint16": _number("H"),
    "float64": _number("d"),
    "error_code": _number("h"),
    "timedelta_i32": _milliseconds("i"),
    "timedelta_i64": _milliseconds("q"),
    "datetime_i64": _milliseconds("q"),
    "uuid": _write_uuid,
}


def _text_or_bytes(field: FieldPlan, owner: StructPlan) -> Write:
    """Strings, bytes and records: a length, then that many bytes."""
    is_text = field.kafka_type == "string"
    pack = (INT16 if is_text else INT32).pack
    flexible = owner.flexible
    nullable = field.nullable and not field.is_array
    null = b"\0" if flexible else pack(-1)
    for_people = field.name == "error_message"

    def write(out: bytearray, value: Any) -> None:
        if value is None and nullable:
            out += null
            return
        if is_text:
            # For example a name without a value, in a version that has no null.
            text = "" if value is None else shortened(value) if for_people else value
            data = text.encode()
            if len(data) > MAX_STRING_BYTES:
                raise ValueError(f"{field.name} of {len(data)} bytes")
        else:
            data = value
        size = len(data)
        if not flexible:
            out += pack(size)
        elif size < 0x7F:  # here and not by a call: nearly every string of every response
            out.append(size + 1)
        else:
            out += uvarint(size + 1)
        out += data

    return write
