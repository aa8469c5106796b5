"""Kafka's primitive types, for the messages that are read and written by hand.

    string           int16 n, n bytes           nullable: n = -1
    compact string   uvarint n + 1, n bytes     nullable: 0
    array, records   int32 n, n items or bytes  nullable: n = -1
    compact array    uvarint n + 1, n items     nullable: 0
    tagged fields    uvarint count, count x (uvarint tag, uvarint size, size bytes)

Readers take (buffer, position) and return (value, next position). They raise `struct.error`,
`IndexError` or `ValueError` for bytes that end too early or make no sense; whoever reads a message
turns all three into `MalformedMessage`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from uuid import UUID

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
UUID_BYTES: Final = 16
MAX_STRING_BYTES: Final = 32_767
"""Also of compact strings, whose length could say more."""
LONGEST_MESSAGE: Final = 8_000
"""Characters of an error message. Each takes four bytes at most."""
MAX_TAGS: Final = 1_000
"""Tagged fields of one struct or header. Kafka's schemas have a handful; more is an attack."""

MAX_PARTITIONS: Final = 200_000
"""Of one Fetch request, wherever the reader does not know better; some 50 MB of objects."""

Buffer = bytes | bytearray | memoryview


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """At most five bytes, seven bits a byte, lowest first."""
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return byte, pos
    value = byte & 0x7F
    for shift in range(7, 35, 7):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise ValueError("a varint of more than five bytes")


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


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
    """-1 for null. A length that cannot fit into what is left is refused before anyone loops."""
    (length,) = INT32.unpack_from(buf, pos)
    pos += INT32.size
    if not -1 <= length <= len(buf) - pos:
        raise ValueError("an array that cannot fit")
    return length, pos


def read_compact_array_length(buf: memoryview, pos: int) -> tuple[int, int]:
    count, pos = read_uvarint(buf, pos)
    if count > len(buf) - pos + 1:
        raise ValueError("an array that cannot fit")
    return count - 1, pos


def check_count(count: int, most: int) -> None:
    """Held against what a request names in all, also of topics without partitions: a few bytes name one, and
    each is some work."""
    if count > most:
        raise ValueError(f"more than {most} topics or partitions")


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
    end = pos + UUID_BYTES
    if end > len(buf):
        raise ValueError("a UUID runs over the end")
    return _uuid(bytes(buf[pos:end])), end


@lru_cache(maxsize=4096)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


def _tag_count(buf: Buffer, pos: int) -> tuple[int, int]:
    count, pos = read_uvarint(buf, pos)
    if count > MAX_TAGS:
        raise ValueError(f"{count} tagged fields")
    return count, pos


def skip_tags(buf: memoryview, pos: int) -> int:
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


def read_tags(buf: memoryview, pos: int, on_tag: Callable[[int, memoryview], None]) -> int:
    """Call `on_tag(tag, its bytes)` for each, known or not."""
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


def shortened(message: str) -> str:
    """What people read may quote a name that is as long as strings can be."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."


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
