"""Kafka's primitive types survive their own bytes, agree with kio's, and no bytes do more than ValueError."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import readers, writers

from metadata_quorum.foundation.primitives import (
    Reader,
    compact_string,
    read_uvarint,
    read_varlong,
    string,
    tagged_field,
    uvarint,
    varlong,
)
from spark_connector.varints import read_varints

TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
METHODS = ("int16", "int32", "int64", "uvarint", "varlong", "nullable_string", "nullable_compact_string")


@given(st.integers(0, 2**32 - 1))
def test_uvarints(value: int) -> None:
    data = uvarint(value)
    assert read_uvarint(data, 0) == (value, len(data))
    assert Reader(data).uvarint() == value
    written = io.BytesIO()
    writers.write_unsigned_varint(written, value)
    assert written.getvalue() == data
    assert _read_by_kio(readers.read_unsigned_varint, data) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs(value: int) -> None:
    data = varlong(value)
    assert len(data) <= 10
    assert read_varlong(data, 0) == (value, len(data))
    assert Reader(data).varlong() == value
    assert _read_by_kio(readers.read_signed_varlong, data) == value


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_the_connector_reads_the_same_numbers_at_once(values: list[int]) -> None:
    pieces = [varlong(value) for value in values]
    ends = np.cumsum([len(piece) for piece in pieces])
    begins = np.concatenate([[0], ends[:-1]])
    found, after = read_varints(np.frombuffer(b"".join(pieces), np.uint8), begins)
    assert found.tolist() == values
    assert after.tolist() == ends.tolist()


@given(st.none() | TEXT)
def test_strings(text: str | None) -> None:
    assert Reader(string(text)).nullable_string() == text
    assert Reader(compact_string(text)).nullable_compact_string() == text
    assert _read_by_kio(readers.read_nullable_legacy_string, string(text)) == text
    assert _read_by_kio(readers.read_compact_string_nullable, compact_string(text)) == text


@given(st.dictionaries(st.integers(0, 1000), st.binary(max_size=20), max_size=5))
def test_tagged_fields(fields: dict[int, bytes]) -> None:
    data = uvarint(len(fields)) + b"".join(tagged_field(tag, value) for tag, value in fields.items())
    assert {tag: bytes(value) for tag, value in Reader(data).tagged_fields().items()} == fields


@pytest.mark.parametrize("method", [*METHODS, "nullable_bytes", "nullable_compact_bytes", "tagged_fields"])
@given(data=st.binary(max_size=20))
def test_a_reader_raises_value_errors_only(method: str, data: bytes) -> None:
    reader = Reader(data)
    try:
        getattr(reader, method)()
    except ValueError:
        pass
    assert 0 <= reader.pos <= len(data)


def _read_by_kio(read: Callable[[bytes, int], tuple[object, int]], data: bytes) -> object:
    value, size = read(data, 0)
    assert size == len(data)
    return value
