"""Kafka's message schemas, as the package kio generated them, prepared for reading and writing.

kio has one frozen dataclass per message, struct and version. A `StructPlan` holds, for one of them, each
field's name in Kafka, its type, and its default in plain Python (ints, strings, UUIDs, lists). Of kio only
the schemas are used: decoding.py and encoding.py make readers and writers of the plans, and tests compare
them with kio's.

Differences that the plans level out:
* kio drops the `_ms` of names and has timedelta and datetime for defaults; here they are ints;
* kio has None for the zero UUID; here it is `UUID(int=0)`;
* a field lives in some versions only: `default_in_any_version` finds its default for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args

from kraft.wire.kio_schemas import (
    EntityField,
    EntityTupleField,
    api_key_map,
    classify_field,
    is_optional,
    load_request_schema,
    load_response_schema,
    schema_name_map,
)
from metadata_quorum.foundation.model import ZERO_UUID

__all__ = [
    "REQUEST",
    "RESPONSE",
    "FieldPlan",
    "MessageId",
    "StructPlan",
    "default_in_any_version",
    "is_flexible",
    "plan_for",
    "versions_of",
]

REQUEST: Final = "request"
RESPONSE: Final = "response"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class FieldPlan(NamedTuple):
    """One field of one struct in one version."""

    name: str
    """Kafka's name in snake case."""
    kafka_type: str
    """The type of the value or, for an array, of its items; empty for structs."""
    default: Any
    """The default value of the field, in our form."""
    struct: StructPlan | None
    """The plan of the nested struct, for structs and arrays of structs."""
    is_array: bool
    nullable: bool
    """Whether it may be null on the wire; of an array: the array."""
    tag: int | None
    """The field's number among the struct's tagged fields; None if it is always there."""


class StructPlan:
    """One struct in one version: the fields it has, and where it lies inside its message."""

    def __init__(self, kio_class: type[Any], message: MessageId, path: tuple[str, ...]) -> None:
        self.kio_class = kio_class
        self.message = message
        self.path = path
        self.flexible = bool(kio_class.__flexible__)
        """Compact strings and arrays; tagged fields at the end."""
        self.fields = tuple(_field_plan(field, message, path) for field in fields(kio_class))
        self.names = frozenset(field.name for field in self.fields)


class MessageId(NamedTuple):
    """Which message, whatever the version."""

    api_key: int
    kind: str


@cache
def plan_for(message: MessageId, version: int) -> StructPlan:
    """The plan of a whole message. Raises `KeyError` where kio has no such message or version."""
    if version not in versions_of(message.api_key):
        raise KeyError((message, version))
    load = load_request_schema if message.kind == REQUEST else load_response_schema
    return StructPlan(load(message.api_key, version), message, ())


@lru_cache(maxsize=1024)  # bounded: clients may name APIs that do not exist
def versions_of(api_key: int) -> tuple[int, ...]:
    """All versions that kio can read and write, oldest first; empty for an unknown API."""
    name = api_key_map.get(api_key)
    return tuple(sorted(schema_name_map[name])) if name is not None else ()


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Whether that version has compact strings and tagged fields, in header and body."""
    return plan_for(MessageId(api_key, REQUEST), version).flexible


@cache
def default_in_any_version(message: MessageId, path: tuple[str, ...], name: str) -> Any:
    """The default of a field that some version of the message has. Raises `AttributeError` if none has.

    The versions are loaded one after the other until the name is found, the newest and the oldest first:
    nearly every field is in one of these, and to load all would take a tenth of a second.
    """
    for struct in _same_struct_in_all_versions(message, path):
        for field in struct.fields:
            if field.name == name:
                return field.default
    where = ".".join((f"{message.kind} {message.api_key}", *path))
    raise AttributeError(f"no version of {where} has a field {name!r}")


def _same_struct_in_all_versions(message: MessageId, path: tuple[str, ...]) -> Iterator[StructPlan]:
    versions = versions_of(message.api_key)
    for version in (*versions[-1:], *versions[:1], *versions[-2:0:-1]):
        struct: StructPlan | None = plan_for(message, version)
        for step in path:
            assert struct is not None
            struct = next((field.struct for field in struct.fields if field.name == step), None)
            if struct is None:
                break
        if struct is not None:
            yield struct


def _field_plan(field: Field[Any], message: MessageId, path: tuple[str, ...]) -> FieldPlan:
    kind = classify_field(field)
    kafka_type: str = field.metadata.get("kafka_type", "")
    name = field.name.rstrip("_")
    if kafka_type.startswith(("timedelta", "datetime")):
        name += "_ms"
    struct = None
    if isinstance(kind, EntityField | EntityTupleField):
        struct = StructPlan(kind.type_, message, (*path, name))
    return FieldPlan(
        name,
        kafka_type,
        _default(field, kafka_type, struct, kind.is_array),
        struct,
        kind.is_array,
        nullable=_is_nullable(field),
        tag=field.metadata.get("tag"),
    )


def _is_nullable(field: Field[Any]) -> bool:
    # Not `is_optional`: for an array that is whether its items are, which only kio's own UUIDs are.
    return NoneType in get_args(field.type)


def _default(field: Field[Any], kafka_type: str, struct: StructPlan | None, is_array: bool) -> Any:
    """Kafka's default: the schema's own one, else the type's empty value."""
    if is_array:
        return None if field.default is None else ()
    if struct is not None:
        # A nullable struct is null, any other holds its own fields' defaults; message.py makes it.
        return None if field.default is None or is_optional(field) else struct
    if field.default is not MISSING:
        return _plain(field.default, kafka_type)
    if kafka_type == "records" and not is_optional(field):
        return b""
    return _EMPTY_VALUES[kafka_type]


def _plain(value: Any, kafka_type: str) -> Any:
    """A default of kio's, as plain Python."""
    match kafka_type:
        case "uuid":
            return ZERO_UUID if value is None else value
        case "error_code":
            return int(value)
        case "timedelta_i32" | "timedelta_i64":
            return value // _MILLISECOND
        case "datetime_i64":
            return -1 if value is None else (value - _EPOCH) // _MILLISECOND
    return value


_EMPTY_VALUES: Final[dict[str, Any]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
    "error_code": 0,
    "timedelta_i32": 0,
    "timedelta_i64": 0,
    "datetime_i64": 0,
}
