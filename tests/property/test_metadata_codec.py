"""Every metadata record and every command survives its own bytes; no bytes do more than ValueError."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_quorum.foundation.codec import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int32s,
    Int64,
    NullableInt32s,
    NullableString,
    NullableUuids,
    String,
    UInt16,
    Uuid,
    Uuids,
)
from metadata_quorum.metadata import records
from metadata_quorum.protocol import commands, stamped_command

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


INT32S = st.lists(_integers(32), max_size=4).map(tuple)
UUIDS = st.lists(st.uuids(), max_size=4).map(tuple)
STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    _codec: strategy
    for hint, strategy in (
        (Int8, _integers(8)),
        (Int16, _integers(16)),
        (UInt16, st.integers(0, 65535)),
        (Int32, _integers(32)),
        (Int64, _integers(64)),
        (Float64, st.floats(allow_nan=False)),
        (Bool, st.booleans()),
        (Uuid, st.uuids()),
        (String, TEXT),
        (NullableString, st.none() | TEXT),
        (Bytes, st.binary(max_size=20)),
        (Int32s, INT32S),
        (NullableInt32s, st.none() | INT32S),
        (Uuids, UUIDS),
        (NullableUuids, st.none() | UUIDS),
    )
    for _codec in [typing.get_args(hint)[1]]
}


def _struct(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{f.name: _value(hints[f.name]) for f in dataclasses.fields(cls)})


def _value(hint: Any) -> st.SearchStrategy[Any]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _struct(hint)
    for note in typing.get_args(hint)[1:]:
        if note in STRATEGIES:
            return STRATEGIES[note]
    if typing.get_origin(hint) is typing.Annotated:  # by a tag, not by another codec
        return _value(typing.get_args(hint)[0])
    return st.lists(_value(typing.get_args(hint)[0]), max_size=3).map(tuple)


@pytest.mark.parametrize("cls", records.RECORDS.types, ids=lambda cls: cls.__name__)
def test_records_roundtrip(cls: type[Any]) -> None:
    @given(_struct(cls))
    def roundtrip(record: Any) -> None:
        assert records.decode(records.encode(record)) == record

    roundtrip()


@pytest.mark.parametrize("cls", commands.COMMANDS.types, ids=lambda cls: cls.__name__)
def test_commands_roundtrip(cls: type[Any]) -> None:
    @given(_struct(cls), _integers(32), _integers(60))
    def roundtrip(command: Any, epoch: int, now_ms: int) -> None:
        proposal = stamped_command.StampedCommand(epoch, now_ms, command)
        assert stamped_command.decode(stamped_command.encode(proposal)) == proposal

    roundtrip()


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_politely(data: bytes) -> None:
    for decode in (records.decode, stamped_command.decode):
        try:
            decode(data)
        except ValueError:
            pass


@given(st.data())
def test_damaged_records_are_refused_politely(data: st.DataObject) -> None:
    record = records.PartitionRecord(partition_id=1, topic_id=UUID(int=3), replicas=(1, 2, 3), isr=(1, 2))
    value = bytearray(records.encode(record))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        records.decode(value)
    except ValueError:
        pass
