"""What clients did and the results they got: the history of a run, in memory and as a file.

The workload appends one operation after the other (`HistoryWriter`), the checker reads them all (`read`). A
file has one JSON object per line. The first is the header: which run, and in which mode each topic was
written. Every other line is an operation with its invocation and its completion:

    {"process":3,"f":"send","start":1200,"end":5200,"outcome":"ok","ops":[["send","t-0",812,41]]}
    {"process":4,"f":"poll","start":2000,"end":9000,"outcome":"ok","ops":[["poll",{"t-0":[[40,811],[41,812]]}]]}

Where a poll ends before its operation does, its time follows, and then what was wrong with messages:

    ["poll",{"t-0":[[40,811]]},2100,[["t-0",40,"headers"]]]

Lines are in the order of completion; operations that were still open when the run ended come last, as
"info". An operation is named by its index among the operations, from 0. Times are nanoseconds since the start
of the run, on one monotonic clock. Fields that hold their default are left out.

A *key* is a partition, "topic-0". Values are integers, unique over the whole run: a value that is seen twice
was written twice by the cluster, not by the client.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from sys import intern
from typing import Any, Final, Literal, NamedTuple, TextIO

from metadata_quorum.foundation.garbage import collection_paused
from metadata_quorum.foundation.model import TopicPartition

VERSION = 1

Outcome = Literal["ok", "fail", "info"]
"""ok: it happened. fail: it surely did not, and never will. info: unknown; such an operation retires its
process number, because it may still take effect at any later time. (A member goes on after a commit.)"""

Function = Literal[
    "send", "poll", "txn", "init", "ends", "assign", "subscribe", "owned", "commit", "committed", "crash"
]
"""txn: a transaction, ok where it committed, fail where it surely did not. init: a producer took over a
transactional id. ends: where partitions end for each isolation level, when every transaction had to be
over. owned: a member of a group was given partitions. commit: offsets were committed to a group. committed:
how far a group has committed, as its coordinator says."""


ACKS_ALL: Final = -1


class TopicMode(NamedTuple):
    """How a topic is written. A topic has one mode over a whole run: what is tolerated depends on it."""

    partitions: int
    acks: int  # 0, 1 or ACKS_ALL
    idempotent: bool = False
    transactional: bool = False
    compacted: bool = False
    """Of values with the same record key only the last one stays."""


class Send(NamedTuple):
    key: str
    value: int
    offset: int | None = None  # None: unknown (no ack, acks=0, or an ack that names no offset)
    record_key: int | None = None  # the record's own key, in topics that are compacted
    failed: bool = False  # by itself: it surely is in no log, whatever became of the others of its operation


class AlteredRecord(NamedTuple):
    """A message that was handed out with other things than it was sent with."""

    key: str
    offset: int
    what: str  # "key", "headers" or "timestamp"


class Poll(NamedTuple):
    messages: Mapping[str, Sequence[Sequence[int]]]
    """Per key the (offset, value) pairs, in the order in which the consumer handed them out."""
    at: int | None = None  # ns, when it did; None: by the end of the operation
    altered: Sequence[AlteredRecord] = ()


MicroOperation = Send | Poll


class HistoryTransaction(NamedTuple):
    """Of a transaction: its id, and the input it consumed, as offsets committed with its output."""

    id: str
    group: str | None = None
    consumed: Mapping[str, Sequence[int]] = {}  # key -> (from, to): offsets from ≤ offset < to
    commit_asked: int | None = None  # ns; None: never requested, so it surely did not commit


class Operation(NamedTuple):
    process: int
    f: Function
    start: int  # ns
    end: int  # ns; of an operation that never completed: when the run ended
    outcome: Outcome
    ops: Sequence[MicroOperation] = ()
    error: str | None = None
    final: bool = False  # of the final phase, which reads everything once more in a quiet cluster
    keys: Sequence[str] = ()  # of assign and subscribe: what the process reads from now on
    rebalanced: Sequence[str] = ()  # keys that were given to or taken from the process during this operation
    txn: HistoryTransaction | None = None
    uncommitted: bool = False  # its polls were of isolation.level=read_uncommitted
    ends: Mapping[str, Sequence[int]] = {}  # of ends: key -> (last stable offset, high watermark)
    group: str | None = None  # of subscribe, owned, commit and committed
    generation: int | None = (
        None  # of owned: the group's; of commit: the member's, where start is when it asked
    )
    committed: Mapping[str, int] = {}  # of commit and committed: key -> the next offset to read
    starts: Mapping[str, int] = {}  # of assign: key -> the offset from which the process reads it


class Header(NamedTuple):
    topics: Mapping[str, TopicMode]
    scenario: str | None = None
    seed: int | None = None
    started_ms: int = 0  # wall clock, for people


class History(NamedTuple):
    header: Header
    operations: Sequence[Operation]
    torn: bool = False  # the file ended inside a line, which was left out


def topic_of(key: str) -> str:
    return key.rpartition("-")[0]


def partition_of(key: str) -> TopicPartition:
    """The partition that a key names."""
    topic, _, number = key.rpartition("-")
    return TopicPartition(topic, int(number))


class HistoryWriter:
    """Appends operations to a file, from any thread. Every line reaches the operating system at once, so
    that a run that is killed leaves its history."""

    def __init__(self, path: Path, header: Header) -> None:
        self._file: TextIO = path.open("w", buffering=1, encoding="utf-8")
        self._lock = threading.Lock()
        self._file.write(_header_line(header))

    def append(self, operation: Operation) -> None:
        line = _operation_line(operation)
        with self._lock:
            self._file.write(line)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write(path: Path, history: History) -> None:
    with HistoryWriter(path, history.header) as writer:
        for operation in history.operations:
            writer.append(operation)


def read(path: Path) -> History:
    """The history in a file. A last line that was torn by the end of its writer is left out; anything else
    that is wrong is a ValueError that names the line."""
    with path.open(encoding="utf-8") as file, collection_paused():
        header = _header(_parsed(file.readline(), path, 1))
        operations: list[Operation] = []
        torn = False
        for number, line in enumerate(file, 2):
            if not line.endswith("\n"):
                torn = True
                break
            operations.append(_operation(_parsed(line, path, number), path, number))
    return History(header, operations, torn)


# Not json.loads: its checks around the parser, written in C, cost more than the parsing of a short line.
_decode = json.JSONDecoder().raw_decode


def _parsed(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        parsed, end = _decode(line)
    except ValueError as error:
        raise ValueError(f"{path.name}, line {number}: not JSON: {error}") from None
    if not isinstance(parsed, dict) or line[end:] != "\n":
        raise ValueError(f"{path.name}, line {number}: not one JSON object")
    return parsed


# Encoding ---------------------------------------------------------------------------------------------------


def _header_line(header: Header) -> str:
    return _line(
        {
            "version": VERSION,
            "scenario": header.scenario,
            "seed": header.seed,
            "started_ms": header.started_ms,
            "topics": {name: mode._asdict() for name, mode in header.topics.items()},
        }
    )


def _operation_line(operation: Operation) -> str:
    fields: dict[str, Any] = {
        "process": operation.process,
        "f": operation.f,
        "start": operation.start,
        "end": operation.end,
        "outcome": operation.outcome,
    }
    if operation.ops:
        fields["ops"] = [_micro(micro) for micro in operation.ops]
    for name in _OPTIONAL:
        value = getattr(operation, name)
        if value != Operation._field_defaults[name]:
            fields[name] = dict(value) if isinstance(value, Mapping) else value
    if operation.txn is not None:
        fields["txn"] = operation.txn._asdict()
    return _line(fields)


_OPTIONAL = (
    "error",
    "final",
    "keys",
    "rebalanced",
    "uncommitted",
    "ends",
    "group",
    "generation",
    "committed",
    "starts",
)
"""Fields of an operation that are written as they are."""


def _micro(micro: MicroOperation) -> list[Any]:
    if isinstance(micro, Poll):
        if micro.altered:
            return ["poll", *micro]
        return ["poll", micro.messages] if micro.at is None else ["poll", micro.messages, micro.at]
    if micro.failed:
        return ["send", *micro]
    return ["send", *(micro[:3] if micro.record_key is None else micro[:4])]


def _line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":")) + "\n"


# Decoding ---------------------------------------------------------------------------------------------------


def _header(fields: dict[str, Any]) -> Header:
    version = fields.get("version")
    if version != VERSION:
        raise ValueError(f"a history of version {version!r}; this kraft reads version {VERSION}")
    topics = {name: TopicMode(**mode) for name, mode in fields["topics"].items()}
    return Header(topics, fields.get("scenario"), fields.get("seed"), fields.get("started_ms", 0))


def _operation(fields: dict[str, Any], path: Path, number: int) -> Operation:
    get = fields.get
    try:
        return Operation(
            fields["process"],
            intern(fields["f"]),  # type: ignore[arg-type]  # a str, where a Literal is meant
            fields["start"],
            fields["end"],
            intern(fields["outcome"]),  # type: ignore[arg-type]
            [_micro_operation(micro) for micro in get("ops", ())],
            get("error"),
            get("final", False),
            get("keys", ()),
            get("rebalanced", ()),
            HistoryTransaction(**fields["txn"]) if get("txn") is not None else None,
            get("uncommitted", False),
            get("ends", {}),
            get("group"),
            get("generation"),
            get("committed", {}),
            get("starts", {}),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name}, line {number}: not an operation: {error!r}") from None


def _micro_operation(micro: list[Any]) -> MicroOperation:
    if micro[0] == "send":
        return Send(intern(micro[1]), *micro[2:])
    kind, messages, *more = micro
    if kind != "poll":
        raise ValueError(f"{kind} is neither a send nor a poll")
    at, altered = more[0] if more else None, more[1] if more[1:] else ()
    return Poll(
        {intern(key): pairs for key, pairs in messages.items()},
        at,
        [AlteredRecord(*each) for each in altered],
    )
