"""Kafka's messages, read as their schema says: one reader per message and version, made from its plan.

    plan_for(message, version) -> reader of that struct -> (Message, next position)

No memory is reserved for what a sender merely claims. A count is checked against the bytes that are left and
the least that an item takes; a length against the bytes that are left; a string against Kafka's 32,767 bytes;
and the memory of the decoded message is counted by a `Meter` before it is made, because a struct of three
bytes becomes an object of hundreds.

    struct           field* | where the version is flexible: tagged fields
    nullable struct  int8 -1: null, else the struct follows
    tagged fields    see foundation/primitives.py; an unknown tag is skipped, as Kafka does
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final
from uuid import UUID

from kraft.wire.malformed import MalformedMessage
from kraft.wire.message import Message, default_value, message_class
from kraft.wire.schemas import FieldPlan, MessageId, StructPlan, plan_for
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.primitives import (
    INT16,
    INT32,
    MAX_STRING_BYTES,
    UUID_BYTES,
    read_tags,
    read_uuid,
    read_uvarint,
)

STRUCT_BYTES: Final = 160
"""A struct's own memory: the object and its dict, without the values."""
VALUE_BYTES: Final = 64
"""An item of an array of numbers or strings, with its place in the list; a string's characters are counted
with the bytes of the frame."""

UNLIMITED: Final = 2**62


class Meter:
    """What a message takes in memory, counted while it is decoded."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.used = 0

    def take(self, size: int) -> None:
        """Bytes of one value more. Raises `ValueError` beyond the limit."""
        self.used += size
        if self.used > self.limit:
            raise ValueError(f"decoded it would take more than {self.limit} bytes")

    def take_frame(self, size: int) -> None:
        """The copy of a frame, and the strings made of it."""
        self.take(2 * size)

    def leave_out(self, size: int) -> None:
        """Give back what was taken for `size` bytes of a frame of which nothing stays once it is decoded."""
        self.used -= 2 * size


Read = Callable[[bytes, int, Meter], tuple[Any, int]]
"""Takes a value at a position; gives it and the next position."""


def decode(
    message: MessageId, version: int, buf: bytes | bytearray | memoryview, pos: int, meter: Meter
) -> Message:
    """Raises `MalformedMessage`; trailing bytes are left alone, as Kafka does."""
    data = bytes(buf)  # bytes are read and sliced at half the cost of a view
    result: Message
    try:
        meter.take_frame(len(data) - pos)
        result, end = reader_of(message, version)(data, pos, meter)
        meter.leave_out(len(data) - end)
    except (struct.error, IndexError, ValueError) as error:
        name = plan_for(message, version).kio_class.__name__
        raise MalformedMessage(f"not a {name} of version {version}: {error}") from None
    return result


@cache
def reader_of(message: MessageId, version: int) -> Read:
    """Its first call for a version imports the schema."""
    return _struct_reader(plan_for(message, version))


# ---- structs -----------------------------------------------------------------------------------------


def _struct_reader(plan: StructPlan) -> Read:
    make = message_class(plan.message, plan.path)
    fields = [(field.name, _field_reader(field, plan)) for field in plan.fields if field.tag is None]
    optional = [field for field in plan.fields if field.tag is not None]
    tagged = {field.tag: (field.name, _field_reader(field, plan)) for field in optional}

    def read(buf: bytes, pos: int, meter: Meter) -> tuple[Message, int]:
        message = make()
        values = vars(message)
        for name, read_field in fields:
            values[name], pos = read_field(buf, pos, meter)
        return message, pos

    def read_with_tags(buf: bytes, pos: int, meter: Meter) -> tuple[Message, int]:
        message, pos = read(buf, pos, meter)
        for field in optional:
            vars(message)[field.name] = default_value(field)
        if buf[pos] == 0:
            return message, pos + 1
        return message, _read_tags(tagged, vars(message), buf, pos, meter)

    return read_with_tags if plan.flexible else read


def _read_tags(
    known: dict[int | None, tuple[str, Read]], values: dict[str, Any], buf: bytes, pos: int, meter: Meter
) -> int:
    def take(tag: int, data: bytes) -> None:
        if (field := known.get(tag)) is not None:
            name, read_field = field
            values[name], end = read_field(data, 0, meter)
            if end != len(data):
                raise ValueError(f"the tagged field {name} is not as long as it says")
        else:
            meter.leave_out(len(data))

    return read_tags(buf, pos, take)


def _field_reader(field: FieldPlan, owner: StructPlan) -> Read:
    if field.struct is not None:
        read = _struct_reader(field.struct)
        if field.is_array:
            return _array(field, owner, read, _struct_cost(field.struct), _least_bytes_of(field.struct))
        return _nullable(read) if field.nullable else read
    if (number := _NUMBERS.get(field.kafka_type)) is not None:
        return _numbers(field, owner, number) if field.is_array else _number(number)
    if field.kafka_type == "error_code":
        read = _read_error_code
    elif field.kafka_type == "uuid":
        read = _read_uuid
    else:
        read = _text_or_bytes(field, owner)
    if field.is_array:
        return _array(field, owner, read, VALUE_BYTES, _least_bytes_of_item(field, owner))
    return read


def _nullable(read: Read) -> Read:
    def read_nullable(buf: bytes, pos: int, meter: Meter) -> tuple[Any, int]:
        # Any negative byte is null, as for Kafka.
        return (None, pos + 1) if buf[pos] > _MAX_INT8 else read(buf, pos + 1, meter)

    return read_nullable


def _struct_cost(plan: StructPlan) -> int:
    """The size of one struct in memory, without its arrays, which the meter counts separately."""
    nested = [field.struct for field in plan.fields if field.struct is not None and not field.is_array]
    return STRUCT_BYTES + VALUE_BYTES * len(plan.fields) + sum(map(_struct_cost, nested))


# ---- the least that an item takes in the frame ---------------------------------------------------------


def _least_bytes_of(plan: StructPlan) -> int:
    least = sum(_least_bytes_of_field(field, plan) for field in plan.fields if field.tag is None)
    return least + 1 if plan.flexible else least


def _least_bytes_of_field(field: FieldPlan, owner: StructPlan) -> int:
    if field.is_array:
        return 1 if owner.flexible else INT32.size
    if field.struct is not None:
        return 1 if field.nullable else _least_bytes_of(field.struct)
    return _least_bytes_of_item(field, owner)


def _least_bytes_of_item(field: FieldPlan, owner: StructPlan) -> int:
    if (number := _NUMBERS.get(field.kafka_type)) is not None:
        return struct.calcsize(">" + number)
    if field.kafka_type == "uuid":
        return UUID_BYTES
    if field.kafka_type == "error_code":
        return INT16.size
    if owner.flexible:
        return 1
    return INT16.size if field.kafka_type == "string" else INT32.size


# ---- values --------------------------------------------------------------------------------------------

_MAX_INT8: Final = 127

_NUMBERS: Final = {
    # kafka_type: struct's letter
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}


_ERROR_CODES: Final = frozenset(map(int, ErrorCode))


def _number(letter: str) -> Read:
    layout = struct.Struct(">" + letter)
    unpack_from, size = layout.unpack_from, layout.size

    def read(buf: bytes, pos: int, meter: Meter) -> tuple[Any, int]:
        return unpack_from(buf, pos)[0], pos + size

    return read


def _read_uuid(buf: bytes, pos: int, meter: Meter) -> tuple[UUID, int]:
    return read_uuid(buf, pos)


def _read_error_code(buf: bytes, pos: int, meter: Meter) -> tuple[int, int]:
    (code,) = INT16.unpack_from(buf, pos)
    return (code if code in _ERROR_CODES else ErrorCode.UNKNOWN_SERVER_ERROR.value), pos + INT16.size


def _text_or_bytes(field: FieldPlan, owner: StructPlan) -> Read:
    """Strings, bytes and records: a length, then that many bytes."""
    is_text = field.kafka_type == "string"
    longest = MAX_STRING_BYTES if is_text else UNLIMITED
    nullable = field.nullable and not field.is_array
    length_of = _length_reader(owner, INT16 if is_text else INT32)

    def read(buf: bytes, pos: int, meter: Meter) -> tuple[Any, int]:
        length, pos = length_of(buf, pos)
        if length < 0:
            if length < -1 or not nullable:
                raise ValueError(f"{field.name} is null" if length == -1 else "a negative length")
            return None, pos
        end = pos + length
        if end > len(buf) or length > longest:
            raise ValueError(f"{field.name} of {length} bytes")
        value = buf[pos:end]
        return (value.decode() if is_text else value), end

    return read


def _array(field: FieldPlan, owner: StructPlan, read: Read, item_cost: int, least_bytes: int) -> Read:
    length_of = _count_reader(field, owner, least_bytes)

    def read_array(buf: bytes, pos: int, meter: Meter) -> tuple[list[Any] | None, int]:
        count, pos = length_of(buf, pos)
        if count < 0:
            return None, pos
        meter.take(count * item_cost)
        items = []
        for _ in range(count):
            item, pos = read(buf, pos, meter)
            items.append(item)
        return items, pos

    return read_array


def _numbers(field: FieldPlan, owner: StructPlan, letter: str) -> Read:
    size = struct.calcsize(">" + letter)
    length_of = _count_reader(field, owner, size)

    def read_numbers(buf: bytes, pos: int, meter: Meter) -> tuple[list[Any] | None, int]:
        count, pos = length_of(buf, pos)
        if count < 0:
            return None, pos
        meter.take(count * VALUE_BYTES)
        return list(struct.unpack_from(f">{count}{letter}", buf, pos)), pos + count * size

    return read_numbers


ReadLength = Callable[[bytes, int], tuple[int, int]]
"""-1 means null."""


def _length_reader(owner: StructPlan, classic: struct.Struct) -> ReadLength:
    def read_compact(buf: bytes, pos: int) -> tuple[int, int]:
        length = buf[pos]
        if length < 0x80:  # here and not by a call: every string of every request passes through
            return length - 1, pos + 1
        length, pos = read_uvarint(buf, pos)
        return length - 1, pos

    def read_classic(buf: bytes, pos: int) -> tuple[int, int]:
        return classic.unpack_from(buf, pos)[0], pos + classic.size

    return read_compact if owner.flexible else read_classic


def _count_reader(field: FieldPlan, owner: StructPlan, least_bytes: int) -> ReadLength:
    length_of = _length_reader(owner, INT32)

    def read(buf: bytes, pos: int) -> tuple[int, int]:
        count, pos = length_of(buf, pos)
        if count < 0:
            if count < -1 or not field.nullable:
                raise ValueError(f"{field.name} is null" if count == -1 else "a negative count")
        elif count * least_bytes > len(buf) - pos:
            raise ValueError(f"{field.name} claims {count} items, {len(buf) - pos} bytes are left")
        return count, pos

    return read
