"""Kafka's flexible encoding, for what is stored: metadata records, control records, commands.

A struct is a frozen dataclass whose annotations name the codec of each field, so that one
declaration is the type, the table and the documentation at once:

    @dataclass(frozen=True, slots=True)
    class TopicRecord:
        name: String
        topic_id: Uuid

`Schema.of(TopicRecord)` turns it into a reader and writer. `Annotated[..., Since(2)]` gives the
first version that has the field, `Annotated[..., Tag(0)]` puts it into the tagged section (written
only where it differs from its default). Structs nest as `tuple[Inner, ...]`, or with `| None`.

    bytes of a struct:  field* | uvarint number of tags | (uvarint tag | uvarint size | field)*
    string, bytes, array:  uvarint (length + 1), 0 for null | contents

The values' own bytes are those of primitives.py. A `SchemaRegistry` numbers the structs of one kind:
metadata/records.py, protocol/commands.py. Malformed input raises `ValueError`.
"""

from __future__ import annotations

import dataclasses
import struct
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from metadata_quorum.foundation.primitives import Buffer, Reader, compact_string, uuid_of, uvarint

T = TypeVar("T")
C = TypeVar("C", bound=type[Any])


class FieldCodec(Protocol):
    """How one kind of value is written and read. `version` is that of the whole record."""

    def write(self, out: bytearray, value: Any, version: int) -> None: ...

    def read(self, reader: Reader, version: int) -> Any: ...


class _Fixed:
    """A big-endian number of fixed width."""

    def __init__(self, fmt: str) -> None:
        self._struct = struct.Struct(">" + fmt)

    def write(self, out: bytearray, value: Any, version: int) -> None:
        out += self._struct.pack(value)

    def read(self, reader: Reader, version: int) -> Any:
        return self._struct.unpack(reader.take(self._struct.size))[0]


class _Uuid:
    """Sixteen bytes."""

    def write(self, out: bytearray, value: UUID, version: int) -> None:
        out += value.bytes

    def read(self, reader: Reader, version: int) -> UUID:
        return uuid_of(bytes(reader.take(16)))


class _CompactBytes:
    """Length + 1, then the bytes; 0 is null."""

    def write(self, out: bytearray, value: bytes | None, version: int) -> None:
        if value is None:
            out.append(0)
            return
        out += uvarint(len(value) + 1)
        out += value

    def read(self, reader: Reader, version: int) -> bytes | None:
        return reader.nullable_compact_bytes()


class _CompactString:
    """A compact string: its length, and UTF-8."""

    def write(self, out: bytearray, value: str | None, version: int) -> None:
        out += compact_string(value)

    def read(self, reader: Reader, version: int) -> str | None:
        return reader.nullable_compact_string()


class _NotNull:
    """Raises `ValueError` for null, which the encoding allows but the field does not."""

    def __init__(self, inner: FieldCodec) -> None:
        self.inner = inner

    def write(self, out: bytearray, value: Any, version: int) -> None:
        if value is None:
            raise ValueError("null where the field must have a value")
        self.inner.write(out, value, version)

    def read(self, reader: Reader, version: int) -> Any:
        value = self.inner.read(reader, version)
        if value is None:
            raise ValueError("null where the field must have a value")
        return value


def array_count(reader: Reader) -> int:
    """How many elements follow; below 0 for null. Raises ValueError for more than there can be."""
    count = reader.uvarint() - 1
    if count > reader.remaining:  # every element takes a byte at least
        raise ValueError(f"array claims {count} elements, {reader.remaining} bytes follow")
    return count


class _Array:
    """Number of elements + 1, then the elements; 0 is null."""

    def __init__(self, element: FieldCodec) -> None:
        self._element = element

    def write(self, out: bytearray, value: tuple[Any, ...] | None, version: int) -> None:
        if value is None:
            out.append(0)
            return
        out += uvarint(len(value) + 1)
        for item in value:
            self._element.write(out, item, version)

    def read(self, reader: Reader, version: int) -> tuple[Any, ...] | None:
        count = array_count(reader)
        if count < 0:
            return None
        return tuple(self._element.read(reader, version) for _ in range(count))


_BYTES: Final = _CompactBytes()
_STRING: Final = _CompactString()
_INT32: Final = _Fixed("i")
_UUID: Final = _Uuid()

Int8 = Annotated[int, _Fixed("b")]
Int16 = Annotated[int, _Fixed("h")]
UInt16 = Annotated[int, _Fixed("H")]
Int32 = Annotated[int, _INT32]
Int64 = Annotated[int, _Fixed("q")]
Float64 = Annotated[float, _Fixed("d")]
Bool = Annotated[bool, _Fixed("?")]
Uuid = Annotated[UUID, _UUID]
String = Annotated[str, _NotNull(_STRING)]
NullableString = Annotated[str | None, _STRING]
Bytes = Annotated[bytes, _NotNull(_BYTES)]
Int32s = Annotated[tuple[int, ...], _NotNull(_Array(_INT32))]
NullableInt32s = Annotated[tuple[int, ...] | None, _Array(_INT32)]
Uuids = Annotated[tuple[UUID, ...], _NotNull(_Array(_UUID))]
NullableUuids = Annotated[tuple[UUID, ...] | None, _Array(_UUID)]


@dataclass(frozen=True, slots=True)
class Since:
    """The field exists from this version of its record on."""

    version: int


@dataclass(frozen=True, slots=True)
class Tag:
    """The field is in the tagged section under this number."""

    number: int


@dataclass(frozen=True, slots=True)
class _Field:
    """One row of a schema."""

    name: str
    codec: FieldCodec
    since: int
    tag: int | None
    default: Any

    def default_value(self, owner: str) -> Any:
        if self.default is dataclasses.MISSING:
            raise ValueError(f"{owner}.{self.name} has no default")
        return self.default


class Schema(Generic[T]):
    """Reader and writer of one dataclass, derived from its annotations."""

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [_field(cls, f, hints[f.name]) for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        self._plain = [f for f in fields if f.tag is None]
        self._tagged = sorted((f for f in fields if f.tag is not None), key=lambda f: f.tag or 0)
        self._by_tag = {f.tag: f for f in self._tagged}

    @staticmethod
    def of(cls: type[Any]) -> Schema[Any]:
        """The schema of `cls`, built once."""
        schema = _SCHEMAS.get(cls)
        if schema is None:
            schema = _SCHEMAS[cls] = Schema(cls)
        return schema

    def write(self, out: bytearray, value: T, version: int) -> None:
        """Append `value` as of `version`; fields that came later are left out."""
        for field in self._plain:
            if field.since <= version:
                field.codec.write(out, getattr(value, field.name), version)
        tagged = [
            (field, item)
            for field in self._tagged
            if field.since <= version and (item := getattr(value, field.name)) != field.default
        ]
        out += uvarint(len(tagged))
        for field, item in tagged:
            body = bytearray()
            field.codec.write(body, item, version)
            out += uvarint(field.tag or 0)
            out += uvarint(len(body))
            out += body

    def read(self, reader: Reader, version: int) -> T:
        """Take one struct from `reader`; unknown tags are skipped, absent fields get defaults.
        Raises `ValueError`."""
        values: dict[str, Any] = {}
        for field in self._plain:
            if field.since <= version:
                values[field.name] = field.codec.read(reader, version)
            else:
                values[field.name] = field.default_value(self.cls.__name__)
        for _ in range(reader.uvarint()):
            tag, size = reader.uvarint(), reader.uvarint()
            body = Reader(reader.take(size))
            known = self._by_tag.get(tag)
            if known is not None and known.since <= version:
                values[known.name] = known.codec.read(body, version)
        return self.cls(**values)


_SCHEMAS: Final[dict[type[Any], Schema[Any]]] = {}


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """A struct in a registry: its number, and the version that is written."""

    key: int
    version: int
    schema: Schema[Any]


class SchemaRegistry:
    """The structs that one kind of bytes may hold, by number; numbers are in logs, so none is used twice."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._by_type: dict[type[Any], SchemaRow] = {}
        self._by_key: dict[int, SchemaRow] = {}

    @property
    def types(self) -> tuple[type[Any], ...]:
        return tuple(self._by_type)

    def enter(self, key: int, version: int = 0) -> Callable[[C], C]:
        """Decorator that enters a dataclass. Raises `ValueError` where the number is taken."""
        if key in self._by_key:
            raise ValueError(f"two {self._kind} types have number {key}")

        def enter_class(cls: C) -> C:
            self._by_type[cls] = self._by_key[key] = SchemaRow(key, version, Schema.of(cls))
            return cls

        return enter_class

    def version(self, cls: type[Any]) -> int:
        """The version in which a struct is written."""
        return self._by_type[cls].version

    def write_type(self, out: bytearray, value: object) -> SchemaRow:
        """Append number and version of `value`'s struct."""
        row = self._by_type[type(value)]
        out += uvarint(row.key)
        out += uvarint(row.version)
        return row

    def read_type(self, reader: Reader) -> tuple[Schema[Any], int]:
        """Take number and version; gives the struct's schema and that version. Raises `ValueError` for a
        struct or a version that is not known."""
        key, version = reader.uvarint(), reader.uvarint()
        row = self._by_key.get(key)
        if row is None:
            raise ValueError(f"unknown {self._kind} type {key}")
        if version > row.version:
            raise ValueError(f"{row.schema.cls.__name__} version {version} is newer than {row.version}")
        return row.schema, version


def _field(cls: type[Any], field: dataclasses.Field[Any], hint: Any) -> _Field:
    codec: FieldCodec | None = None
    since, tag = 0, None
    base = hint
    if typing.get_origin(hint) is Annotated:
        base, *notes = typing.get_args(hint)
        for note in notes:
            if isinstance(note, Since):
                since = note.version
            elif isinstance(note, Tag):
                tag = note.number
            else:
                codec = note
    codec = codec or _struct_codec(base)
    if codec is None:
        raise TypeError(f"{cls.__name__}.{field.name}: no codec for {hint!r}")
    return _Field(field.name, codec, since, tag, field.default)


def _struct_codec(hint: Any) -> FieldCodec | None:
    """Codec of a nested struct or of a tuple of structs (or of annotated items)."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return Schema.of(hint)
    inner: FieldCodec | None
    args = typing.get_args(hint)
    if typing.get_origin(hint) is types.UnionType:
        inner = _struct_codec(args[0])
        return inner.inner if isinstance(inner, _NotNull) else None
    if typing.get_origin(hint) is tuple and len(args) == 2 and args[1] is Ellipsis:
        element = args[0]
        if typing.get_origin(element) is Annotated:
            inner = typing.get_args(element)[1]
        else:
            inner = _struct_codec(element)
        return _NotNull(_Array(inner)) if inner is not None else None
    return None


def decode_with(read: Callable[[Reader], T], buf: Buffer) -> T:
    """Run `read` over the whole of `buf`. Whatever is wrong with the bytes raises `ValueError`."""
    reader = Reader(buf)
    try:
        value = read(reader)
    except (struct.error, UnicodeDecodeError) as e:
        raise ValueError(f"malformed: {e}") from e
    if reader.remaining:
        raise ValueError(f"{reader.remaining} bytes left over")
    return value
