"""What `kraft top` shows of a node's JSON, as types, and the check that an answer is of its type.

    parsed(Snapshot, text) -> a Snapshot whose every field is what it says, or ValueError

A node of another version, or another program at that port, may answer anything. Whatever is not named here
may be missing, or be more.
"""

from __future__ import annotations

import json
from functools import cache
from types import NoneType
from typing import Any, Final, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

LARGEST: Final = 2**63 - 1
"""Of numbers; as a time in ms, too, a calendar has it."""


class LogDir(TypedDict):
    online: bool


class ShownBroker(TypedDict):
    id: int
    rack: str | None
    address: str | None
    fenced: bool
    shutting_down: bool
    answers: bool
    state: str | None
    leads: int
    replicas: int | None
    size: int | None
    metadata_lag: int | None
    log_dirs: list[LogDir] | None


class ShownReplica(TypedDict):
    id: int
    in_sync: bool
    end: int | None
    offline: bool


class ShownPartition(TypedDict):
    topic: str
    partition: int
    state: str
    leader: int
    start: int | None
    high_watermark: int | None
    end: int | None
    size: int | None
    replicas: list[ShownReplica]


class ShownGroup(TypedDict):
    id: str
    type: str
    state: str
    members: list[object]
    offsets: list[object]
    lag: int | None
    lag_exact: bool


class Leader(TypedDict):
    leader: int


class Quorum(Leader, total=False):
    """Either a problem or a term."""

    problem: str
    term: int


class Totals(TypedDict):
    partitions: int
    no_leader: int
    under_min_isr: int
    under_replicated: int


class Snapshot(TypedDict):
    cluster_id: str
    told_by: int
    time_ms: int
    quorum: Quorum
    brokers: list[ShownBroker]
    totals: Totals
    partitions: list[ShownPartition]
    more_partitions: int
    groups: list[ShownGroup]


class Event(TypedDict):
    time_ms: int
    kind: str
    subject: str
    text: str


class Events(TypedDict):
    events: list[Event]


class Refusal(TypedDict):
    error: str


ShapeT = TypeVar("ShapeT")


def parsed(shape: type[ShapeT], text: str | bytes | bytearray) -> ShapeT:
    """Raises ValueError."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested beyond all sense") from None
    _require(shape, value, "")
    return cast(ShapeT, value)


def _require(shape: Any, value: Any, where: str) -> None:
    if shape is object:
        return
    if is_typeddict(shape):
        if not isinstance(value, dict):
            raise ValueError(f"{where or 'the answer'} is no object")
        for name, inner in _fields(shape).items():
            if name in value:
                _require(inner, value[name], f"{where}.{name}")
            elif name in shape.__required_keys__:
                raise ValueError(f"{where}.{name} is missing")
    elif get_origin(shape) is list:
        if not isinstance(value, list):
            raise ValueError(f"{where} is no list")
        (inner,) = get_args(shape)
        for each in value:
            _require(inner, each, where)
    elif NoneType in get_args(shape):
        (inner,) = (each for each in get_args(shape) if each is not NoneType)
        if value is not None:
            _require(inner, value, where)
    elif type(value) is not shape or (shape is int and abs(value) > LARGEST):
        raise ValueError(f"{where} is no {shape.__name__}")


@cache
def _fields(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)
