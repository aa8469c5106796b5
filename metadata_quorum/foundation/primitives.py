"""Kafka's primitive types, in their bytes: the one place that knows them.

    int8 … int64     big-endian
    uvarint          seven bits a byte, least significant first; at most five bytes (Kafka's UNSIGNED_VARINT)
    varlong          zigzag-coded, the same way; at most ten bytes
    string           int16 n, n bytes           nullable: n = -1
    compact string   uvarint n + 1, n bytes     nullable: 0
    array, records   int32 n, n items or bytes  nullable: n = -1
    compact array    uvarint n + 1, n items     nullable: 0
    tagged fields    uvarint count, count x (uvarint tag, uvarint size, size bytes)

`read_*` functions take (buffer, position) and return (value, next position). They raise `struct.error`,
`IndexError` or `ValueError` for bytes that end too early or make no sense; whoever reads a whole message
turns all three into one error. A `Reader` keeps the position itself, and raises `ValueError` only. Writers
return bytes.

Used by kraft/wire (messages), codec.py (records and commands as dataclasses) and the coordinators' records.
Loops over every record of a batch inline the varints, since a call costs more than the number: batch.py,
record_walk.py, and the connector's varints.py, which reads them by numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar, overload
from uuid import UUID

T = TypeVar("T")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
UUID_BYTES: Final = 16
MAX_UVARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10
MAX_STRING_BYTES: Final = 32_767
"""The longest string of a message, even if it is compact and could be longer."""
MAX_TAGS: Final = 1_000
"""Tagged fields of one struct or header. Kafka's schemas have a handful; more is an attack."""

Buffer = bytes | bytearray | memoryview


# ---- varints -----------------------------------------------------------------------------------------


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """At most five bytes. Raises `IndexError` beyond the end, `ValueError` for more bytes."""
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return byte, pos
    value = byte & 0x7F
    for shift in range(7, 7 * MAX_UVARINT_BYTES, 7):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise ValueError(f"a varint of more than {MAX_UVARINT_BYTES} bytes")


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Zigzag-coded, at most ten bytes. Raises `IndexError` beyond the end, `ValueError` for more bytes."""
    raw = 0
    for shift in range(0, 7 * MAX_VARLONG_BYTES, 7):
        byte = buf[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos
    raise ValueError(f"a varint of more than {MAX_VARLONG_BYTES} bytes")


def uvarint(value: int) -> bytes:
    """`value` is not negative."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varlong(value: int) -> bytes:
    """Zigzag: small numbers of either sign are short. `value` is an int64."""
    return uvarint((value << 1) ^ (value >> 63))


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


# ---- strings, arrays, records, ids -------------------------------------------------------------------


def read_string(buf: memoryview, pos: int) -> tuple[str | None, int]:
    (length,) = INT16.unpack_from(buf, pos)
    return _text(buf, pos + 2, length)


def read_compact_string(buf: memoryview, pos: int) -> tuple[str | None, int]:
    if not buf[pos]:
        return None, pos + 1
    length, pos = read_uvarint(buf, pos)
    return _text(buf, pos, length - 1)


def _text(buf: memoryview, pos: int, length: int) -> tuple[str | None, int]:
    if length < 0:
        if length < -1:
            raise ValueError("a negative length")
        return None, pos
    end = pos + length
    if end > len(buf) or length > MAX_STRING_BYTES:
        raise ValueError(f"a string of {length} bytes")
    return str(buf[pos:end], "utf-8"), end


def read_array_length(buf: memoryview, pos: int) -> tuple[int, int]:
    """-1 for null. Raises `ValueError` for more items than bytes are left."""
    (length,) = INT32.unpack_from(buf, pos)
    pos += INT32.size
    if not -1 <= length <= len(buf) - pos:
        raise ValueError("an array that cannot fit")
    return length, pos


def read_compact_array_length(buf: memoryview, pos: int) -> tuple[int, int]:
    """As `read_array_length`. Raises ValueError if it cannot fit."""
    count, pos = read_uvarint(buf, pos)
    if count > len(buf) - pos + 1:
        raise ValueError("an array that cannot fit")
    return count - 1, pos


def read_records(buf: memoryview, pos: int) -> tuple[memoryview | None, int]:
    (length,) = INT32.unpack_from(buf, pos)
    return _slice(buf, pos + 4, length)


def read_compact_records(buf: memoryview, pos: int) -> tuple[memoryview | None, int]:
    length, pos = read_uvarint(buf, pos)
    return _slice(buf, pos, length - 1)


def _slice(buf: memoryview, pos: int, length: int) -> tuple[memoryview | None, int]:
    if length < 0:
        if length < -1:
            raise ValueError("a negative length")
        return None, pos
    end = pos + length
    if end > len(buf):
        raise ValueError("records run over the end")
    return buf[pos:end], end


def read_uuid(buf: Buffer, pos: int) -> tuple[UUID, int]:
    """Raises `ValueError` beyond the end."""
    end = pos + UUID_BYTES
    if end > len(buf):
        raise ValueError("a UUID runs over the end")
    return uuid_of(bytes(buf[pos:end])), end


@lru_cache(maxsize=4096)
def uuid_of(data: bytes) -> UUID:
    """The UUID of sixteen bytes. The same few are read again and again."""
    return UUID(bytes=data)


def _tag_count(buf: Buffer, pos: int) -> tuple[int, int]:
    count, pos = read_uvarint(buf, pos)
    if count > MAX_TAGS:
        raise ValueError(f"{count} tagged fields")
    return count, pos


def skip_tags(buf: memoryview, pos: int) -> int:
    """The position after the tagged fields. Raises `ValueError` or `IndexError` beyond the end."""
    if not buf[pos]:  # nearly always
        return pos + 1
    count, pos = _tag_count(buf, pos)
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > len(buf):
            raise ValueError("a tagged field runs over the end")
    return pos


@overload
def read_tags(buf: bytes, pos: int, on_tag: Callable[[int, bytes], None]) -> int: ...
@overload
def read_tags(buf: memoryview, pos: int, on_tag: Callable[[int, memoryview], None]) -> int: ...
def read_tags(buf: bytes | memoryview, pos: int, on_tag: Callable[[int, Any], None]) -> int:
    """Call `on_tag(tag, its bytes)` for each, known or not; the position after. Raises `ValueError` or
    `IndexError` beyond the end."""
    count, pos = _tag_count(buf, pos)
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        end = pos + size
        if end > len(buf):
            raise ValueError("a tagged field runs over the end")
        on_tag(tag, buf[pos:end])
        pos = end
    return pos


# ---- writers ---------------------------------------------------------------------------------------


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return INT16.pack(len(data)) + data


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    data = text.encode()
    return uvarint(len(data) + 1) + data


def array_length(count: int) -> bytes:
    return INT32.pack(count)


def compact_array_length(count: int) -> bytes:
    return uvarint(count + 1)


def tagged_field(tag: int, data: bytes) -> bytes:
    return uvarint(tag) + uvarint(len(data)) + data


# ---- one after another -------------------------------------------------------------------------------


class Reader:
    """A position in a buffer. Whatever is wrong with the bytes raises `ValueError`."""

    __slots__ = ("buf", "end", "pos")

    def __init__(self, buf: Buffer, pos: int = 0) -> None:
        self.buf = memoryview(buf)
        self.pos = pos
        self.end = len(buf)

    @property
    def remaining(self) -> int:
        """Bytes that have not been read."""
        return self.end - self.pos

    def take(self, length: int) -> memoryview:
        """The next `length` bytes, not copied. Raises ValueError if there are fewer."""
        pos = self.pos
        if length < 0 or pos + length > self.end:
            raise ValueError(f"needs {length} bytes at {pos}, has {self.end - pos}")
        self.pos = pos + length
        return self.buf[pos : pos + length]

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def uvarint(self) -> int:
        return self._read(read_uvarint)

    def varlong(self) -> int:
        return self._read(read_varlong)

    def string(self) -> str:
        return _not_null(self.nullable_string())

    def nullable_string(self) -> str | None:
        """Any negative length is null."""
        length = self.int16()
        return None if length < 0 else str(self.take(length), "utf-8")

    def nullable_bytes(self) -> bytes | None:
        """Any negative length is null."""
        length = self.int32()
        return None if length < 0 else bytes(self.take(length))

    def compact_string(self) -> str:
        return _not_null(self.nullable_compact_string())

    def nullable_compact_string(self) -> str | None:
        """A string of any length, unlike a message's: what is stored was checked when it came."""
        length = self.uvarint() - 1
        return None if length < 0 else str(self.take(length), "utf-8")

    def nullable_compact_bytes(self) -> bytes | None:
        length = self.uvarint() - 1
        return None if length < 0 else bytes(self.take(length))

    def tagged_fields(self) -> dict[int, memoryview]:
        """The bytes of each, by tag."""
        fields = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            fields[tag] = self.take(self.uvarint())
        return fields

    def _number(self, kind: struct.Struct) -> int:
        pos = self.pos
        try:
            value: int = kind.unpack_from(self.buf, pos)[0]
        except struct.error as e:
            raise ValueError(f"a number at {pos} runs over the end") from e
        self.pos = pos + kind.size
        return value

    def _read(self, read: Callable[[Buffer, int], tuple[T, int]]) -> T:
        try:
            value, self.pos = read(self.buf, self.pos)
        except IndexError:
            raise ValueError(f"a number at {self.pos} runs over the end") from None
        return value


def _not_null(text: str | None) -> str:
    if text is None:
        raise ValueError("null where a string must be")
    return text
