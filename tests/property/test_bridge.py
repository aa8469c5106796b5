"""Every message of every version survives the bridge: what goes in comes out, byte for byte, as by kio."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import (
    Message,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.wire.schemas import REQUEST, RESPONSE, FieldPlan, MessageId, StructPlan, plan_for, versions_of
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.suite.examples import examples

API_KEYS = [key for key in range(93) if versions_of(key)]

CODERS = {REQUEST: (encode_request, decode_request), RESPONSE: (encode_response, decode_response)}


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=40),
    "uuid": st.uuids() | st.just(UUID(int=0)),
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "timedelta_i32": _integers(32),
    "timedelta_i64": st.integers(-(2**40), 2**40),
    "datetime_i64": st.integers(0, 2**32).map(lambda seconds: seconds * 1000),
}


def by_kio(kio_class: type[Any], encoded: bytes) -> bytes:
    """What kio reads, written by kio."""
    entity, size = entity_reader(kio_class)(encoded, 0)
    assert size == len(encoded)
    out = io.BytesIO()
    entity_writer(kio_class)(out, entity)
    return out.getvalue()


def value_of(field: FieldPlan) -> st.SearchStrategy[Any]:
    one = struct_of(field.struct) if field.struct is not None else VALUES[field.kafka_type]
    value = st.lists(one, max_size=3) if field.is_array else one
    # A default of null says that null is allowed; other nullable fields get values only.
    return st.none() | value if field.default is None else value


def struct_of(plan: StructPlan) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={field.name: value_of(field) for field in plan.fields})


def same(given_fields: dict[str, Any], message: Message) -> bool:
    return all(_same_value(value, getattr(message, name)) for name, value in given_fields.items())


def _same_value(given_value: Any, value: Any) -> bool:
    if isinstance(value, Message):
        return same(given_value, value)
    if isinstance(value, list):
        return len(value) == len(given_value) and all(map(_same_value, given_value, value))
    return bool(value == given_value)


@pytest.mark.parametrize("kind", [REQUEST, RESPONSE])
@pytest.mark.parametrize("api_key", API_KEYS)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_what_is_put_in_is_read_back(api_key: int, kind: str, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(api_key)))
    fields = data.draw(struct_of(plan_for(MessageId(api_key, kind), version)))
    encode, decode = CODERS[kind]
    encoded = encode(api_key, version, fields)
    message = decode(api_key, version, bytearray(encoded))
    assert same(fields, message)
    assert encode(api_key, version, message) == encoded
    assert by_kio(plan_for(MessageId(api_key, kind), version).kio_class, encoded) == encoded


@pytest.mark.parametrize("api_key", API_KEYS)
def test_a_message_answers_for_the_fields_of_other_versions(api_key: int) -> None:
    for kind, (encode, decode) in CODERS.items():
        names = {
            field.name
            for version in versions_of(api_key)
            for field in plan_for(MessageId(api_key, kind), version).fields
        }
        for version in versions_of(api_key):
            message = decode(api_key, version, encode(api_key, version, {}))
            assert all(hasattr(message, name) for name in names)
            assert not hasattr(message, "no_such_field")


def test_a_name_that_no_version_knows_is_a_bug() -> None:
    with pytest.raises(AttributeError, match="no_such_field"):
        encode_response(ApiKey.METADATA, 1, {"no_such_field": 1})
    # a field of another version is left out
    assert encode_response(ApiKey.METADATA, 1, {"cluster_id": "x"}) == encode_response(ApiKey.METADATA, 1, {})
