"""Requests that no client sends, made from Kafka's schemas.

    plan of a message -> a plausible request -> the same with one field's bytes replaced -> `HostileRequest`

The rest of each request is plausible, so that handlers are reached and not only the decoder.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from kraft.wire.api_keys import ApiKey
from kraft.wire.schemas import REQUEST, FieldPlan, MessageId, StructPlan, plan_for
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.primitives import MAX_STRING_BYTES, MAX_TAGS, uvarint

VICTIM: Final = "victim"
"""The topic that is written to, altered and deleted."""

MANY: Final = 300

Path = tuple[str, ...]
Replaced = Mapping[Path, bytes]
TAGS: Final = "(tags)"


class HostileRequest(NamedTuple):
    api_key: ApiKey
    version: int
    what: str
    """Which field, and what is wrong with it."""
    body: bytes

    def __repr__(self) -> str:
        return f"{self.api_key.api_name} v{self.version}: {self.what}"


def hostile_requests(api_key: ApiKey, version: int, topic_id: UUID) -> Iterator[HostileRequest]:
    """All that are made for a version: one field is wrong in each."""
    plan = plan_for(MessageId(api_key, REQUEST), version)
    writer = _Writer(topic_id)
    whole = writer.struct(plan, (), {})
    yield HostileRequest(api_key, version, "plausible", whole)
    yield HostileRequest(api_key, version, "empty", b"")
    for at in range(0, len(whole), max(1, len(whole) // 6)):
        yield HostileRequest(api_key, version, f"ends after {at} bytes", whole[:at])
    yield HostileRequest(api_key, version, "goes on", whole + b"\x00" * 100)
    for path, what, data in _wrong(plan, (), writer):
        body = writer.struct(plan, (), {path: data})
        yield HostileRequest(api_key, version, f"{'.'.join(path)} {what}", body)


def full_requests(
    api_key: ApiKey, version: int, topic_id: UUID, size: int, *, distinct: bool = False
) -> Iterator[HostileRequest]:
    """Each array in turn is full of the least items, the same or different ones."""
    plan = plan_for(MessageId(api_key, REQUEST), version)
    writer = _Writer(topic_id)
    for path, field, owner in _all_arrays(plan, ()):
        items = bytearray()
        count = 0
        while len(items) < size:
            items += _least(field, owner, count if distinct else None)
            count += 1
        body = writer.struct(plan, (), {path: _count(count, owner) + items})
        yield HostileRequest(api_key, version, f"{'.'.join(path)} {count} of the least", body)


def _all_arrays(plan: StructPlan, path: Path) -> Iterator[tuple[Path, FieldPlan, StructPlan]]:
    for field in plan.fields:
        here = (*path, field.name)
        if field.is_array:
            yield here, field, plan
        if field.struct is not None:
            yield from _all_arrays(field.struct, here)


def _least(field: FieldPlan, owner: StructPlan, number: int | None) -> bytes:
    """What takes the fewest bytes; a string says the number, where there is one."""
    if field.struct is not None:
        parts = [
            _count(0, field.struct) if each.is_array else _least(each, field.struct, number)
            for each in field.struct.fields
            if each.tag is None
        ]
        return b"".join(parts) + (b"\0" if field.struct.flexible else b"")
    if field.kafka_type == "uuid":
        return bytes(16) if number is None else UUID(int=number).bytes
    if field.kafka_type in _LAYOUTS:
        return struct.pack(_LAYOUTS[field.kafka_type][2], 0)
    is_numbered = field.kafka_type == "string" and number is not None
    return _sized(field, owner, f"{number:x}".encode() if is_numbered else b"")


def damaged(request: HostileRequest, chance: Random) -> HostileRequest:
    """The same with a few bytes changed, left out, or doubled, anywhere."""
    body = bytearray(request.body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        match chance.randrange(4):
            case 0:
                body[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
            case 1:
                del body[at : at + chance.randint(1, 4)]
            case 2:
                body[at:at] = chance.randbytes(chance.randint(1, 8))
            case _:
                body[at:at] = body[at : at + chance.randint(1, 40)]
    return request._replace(what=f"damaged: {body.hex()}", body=bytes(body))


def _wrong(plan: StructPlan, path: Path, writer: _Writer) -> Iterator[tuple[Path, str, bytes]]:
    for field in plan.fields:
        here = (*path, field.name)
        values = _arrays(field, plan, here, writer) if field.is_array else _values(field, plan)
        for what, data in values:
            yield here, what, data
        if field.struct is not None:
            yield from _wrong(field.struct, here, writer)
    if plan.flexible:
        for what, data in _TAGS:
            yield (*path, TAGS), what, data


class _Writer:
    """Plausible bytes, but for what is replaced."""

    def __init__(self, topic_id: UUID) -> None:
        self._topic_id = topic_id

    def struct(self, plan: StructPlan, path: Path, replaced: Replaced) -> bytes:
        out = bytearray()
        tags: list[tuple[int, bytes]] = []
        for field in plan.fields:
            here = (*path, field.name)
            if field.tag is None:
                out += replaced[here] if here in replaced else self._field(field, plan, here, replaced)
            elif any(each[: len(here)] == here for each in replaced):
                data = replaced.get(here) or self._field(field, plan, here, replaced)
                tags.append((field.tag, data))
        if plan.flexible:
            out += replaced.get((*path, TAGS), _tagged(tags))
        return bytes(out)

    def item(self, field: FieldPlan, owner: StructPlan, path: Path, replaced: Replaced) -> bytes:
        """Of an array, or the value of a field that is none."""
        if field.struct is not None:
            present = b"\x01" if field.nullable and not field.is_array else b""
            return present + self.struct(field.struct, path, replaced)
        if field.kafka_type == "uuid":
            return (
                self._topic_id.bytes if field.name in ("topic_id", "id", "topic_ids") else UUID(int=7).bytes
            )
        if field.kafka_type in _LAYOUTS:
            low, high, layout = _LAYOUTS[field.kafka_type]
            value = next((value for part, value in _NUMBERS if part in field.name), field.default)
            if not isinstance(value, int | float) or not low <= value <= high:
                value = 0
            return struct.pack(layout, value)
        if field.kafka_type == "string":
            return _sized(field, owner, _text(field, owner))
        return _sized(field, owner, _BATCH if field.kafka_type == "records" else _BYTES.get(field.name, b""))

    def _field(self, field: FieldPlan, owner: StructPlan, path: Path, replaced: Replaced) -> bytes:
        item = self.item(field, owner, path, replaced)
        return _count(1, owner) + item if field.is_array else item


# ---- what is plausible ---------------------------------------------------------------------------------

_NUMBERS: Final = (
    # part of the name, value
    ("broker_id", 99),
    ("timeout", 100),
    ("max_wait", 100),
    ("replication_factor", 1),
    ("num_partitions", 1),
    ("count", 2),
    ("replica_id", -1),
    ("epoch", -1),
    ("acks", 1),
    ("bytes", 10_000),
    ("replicas", 7),
    ("resource_type", 2),
    ("iterations", 4096),
    ("mechanism", 1),
    ("operation", 3),
    ("permission", 3),
    ("pattern_type", 3),
    ("value", 1_000_000_000),
    ("limit", 100),
)

_TEXTS: Final = (
    ("config_names", "retention.ms"),
    ("configuration_keys", "retention.ms"),
    ("group", "hostile-group"),
    ("transactional", "hostile-transactions"),
    ("protocol_type", "consumer"),
    ("principal", "User:nobody"),
    ("host", "*"),
    ("mechanism", "PLAIN"),
    ("entity_type", "user"),
    ("entity_name", "nobody"),
    ("key", "consumer_byte_rate"),
    ("value", "100000"),
    ("client_software", "hostile"),
    ("topic", VICTIM),
    ("resource_name", VICTIM),
    ("coordinator_keys", "hostile-group"),
)

_BATCH: Final = encode_batch([Record(0, 1_700_000_000_000, b"key", b"value", ())])
_SUBSCRIPTION: Final = struct.pack(">hih6sih", 1, 1, len(VICTIM), VICTIM.encode(), -1, 0)
_BYTES: Final = {"metadata": _SUBSCRIPTION, "auth_bytes": b"\0anna\0wrong", "salt": b"0123456789abcdef01",
                 "salted_password": bytes(32), "client_host_address": b"\x7f\0\0\1"}  # fmt: skip


def _text(field: FieldPlan, owner: StructPlan) -> bytes:
    if field.name == "name":
        in_configs = any(part in "".join(owner.path) for part in ("config", "ops"))
        return b"retention.ms" if in_configs else VICTIM.encode()
    if field.name == "member_id":
        return b""
    return next((text for part, text in _TEXTS if part in field.name), "x").encode()


# ---- what is wrong -------------------------------------------------------------------------------------

_LAYOUTS: Final[Mapping[str, tuple[float, float, str]]] = {
    # kafka_type: lowest, highest, layout
    "bool": (0, 1, ">B"),
    "int8": (-(2**7), 2**7 - 1, ">b"),
    "int16": (-(2**15), 2**15 - 1, ">h"),
    "error_code": (-(2**15), 2**15 - 1, ">h"),
    "uint16": (0, 2**16 - 1, ">H"),
    "int32": (-(2**31), 2**31 - 1, ">i"),
    "timedelta_i32": (-(2**31), 2**31 - 1, ">i"),
    "int64": (-(2**63), 2**63 - 1, ">q"),
    "timedelta_i64": (-(2**63), 2**63 - 1, ">q"),
    "datetime_i64": (-(2**63), 2**63 - 1, ">q"),
    "float64": (-1e308, 1e308, ">d"),
}

_STRINGS: Final = (
    b"", b"a", b".", b"..", b"../../etc/passwd", b"/", b"\0", b"a\nb", b"%s%n{0}", b"a=b,c", b" ",
    b"__cluster_metadata", b"__consumer_offsets", b"*", b"9" * 400, b"a" * 249, b"a" * 250,
    "ü".encode() * 100, "\U0001f9e8".encode() * 60, b"\xff\xfe", b"\xed\xa0\x80", b"(.|.)*!", b"[",
    b"(" * 200,
    b"a" * MAX_STRING_BYTES,
)  # fmt: skip

_BLOBS: Final = (b"", b"\0", b"\xff" * 40, b"\x7f" * 40, _BATCH[:-1], _BATCH[:61], b"\0" * 60_000)


def _values(field: FieldPlan, owner: StructPlan) -> Iterator[tuple[str, bytes]]:
    if field.struct is not None:
        yield "null", b"\xff"
    elif field.kafka_type == "uuid":
        yield from (("zero", bytes(16)), ("of ones", b"\xff" * 16), ("cut", bytes(7)))
    elif field.kafka_type == "float64":
        for value in (0.0, -1.0, 5e-324, float("nan"), float("inf"), 1e308):
            yield repr(value), struct.pack(">d", value)
    elif field.kafka_type == "bool":
        yield from (("true", b"\1"), ("of 2", b"\2"), ("of 255", b"\xff"))
    elif field.kafka_type in _LAYOUTS:
        low, high, layout = _LAYOUTS[field.kafka_type]
        for value in (int(low), -2, -1, 0, 1, 2, int(high) - 1, int(high)):
            if low <= value:
                yield str(value), struct.pack(layout, value)
    elif field.kafka_type == "string":
        for text in _STRINGS:
            yield f"{text[:20]!r}, {len(text)} bytes", _sized(field, owner, text)
        yield "one byte too long", _length(MAX_STRING_BYTES + 1, field, owner) + b"a" * (MAX_STRING_BYTES + 1)
        yield from _lies(field, owner)
    else:
        for blob in _BLOBS:
            yield f"{blob[:8].hex()}, {len(blob)} bytes", _sized(field, owner, blob)
        yield from _lies(field, owner)


def _lies(field: FieldPlan, owner: StructPlan) -> Iterator[tuple[str, bytes]]:
    """Lengths that nothing follows."""
    yield "null", b"\0" if owner.flexible else b"\xff" * (2 if field.kafka_type == "string" else 4)
    yield "shorter than null", b"\xff\xff\xff\xff\x7f" if owner.flexible else b"\x80" + b"\0" * 3
    yield "longer than the frame", _length(30_000, field, owner)
    if owner.flexible:
        yield "an endless length", b"\xff" * 12


def _arrays(field: FieldPlan, owner: StructPlan, path: Path, writer: _Writer) -> Iterator[tuple[str, bytes]]:
    item = writer.item(field, owner, path, {})
    yield "null", b"\0" if owner.flexible else b"\xff\xff\xff\xff"
    yield "empty", _count(0, owner)
    yield "twice the same", _count(2, owner) + item * 2
    yield "many times the same", _count(MANY, owner) + item * MANY
    if field.struct is None:
        for what, data in _values(field, owner):
            yield f"of one: {what}", _count(1, owner) + data
    for claimed in (2, MANY, 2**20, 2**31 - 2):
        yield f"claims {claimed}", _count(claimed, owner) + item
    if owner.flexible:
        yield "claims more than 32 bits", b"\xff\xff\xff\xff\x7f"
    else:
        yield "claims less than null", b"\x80\0\0\0"


_TAGS: Final = (
    ("unknown", b"\x01\xe8\x07\x03abc"),
    ("twice the same", b"\x02\xe8\x07\x00\xe8\x07\x00"),
    ("many", uvarint(MAX_TAGS) + b"\x63\x00" * MAX_TAGS),
    ("too many", uvarint(MAX_TAGS + 1) + b"\x63\x00" * (MAX_TAGS + 1)),
    ("claim many", b"\xff\xff\xff\xff\x07"),
    ("claim a size", b"\x01\x63\xff\xff\xff\xff\x07"),
    *((f"known {tag}, empty", b"\x01" + uvarint(tag) + b"\x00") for tag in range(3)),
    *((f"known {tag}, ones", b"\x01" + uvarint(tag) + b"\x08" + b"\xff" * 8) for tag in range(3)),
)


def _sized(field: FieldPlan, owner: StructPlan, data: bytes) -> bytes:
    return _length(len(data), field, owner) + data


def _length(size: int, field: FieldPlan, owner: StructPlan) -> bytes:
    if owner.flexible:
        return uvarint(size + 1)
    # What is one too long for a string's int16 becomes a negative length.
    return struct.pack(">H", size) if field.kafka_type == "string" else struct.pack(">i", size)


def _count(count: int, owner: StructPlan) -> bytes:
    return uvarint(count + 1) if owner.flexible else struct.pack(">i", count)


def _tagged(tags: list[tuple[int, bytes]]) -> bytes:
    parts = [uvarint(len(tags))]
    parts += [uvarint(tag) + uvarint(len(data)) + data for tag, data in sorted(tags)]
    return b"".join(parts)
