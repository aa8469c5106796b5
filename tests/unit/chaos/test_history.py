"""Histories as files: what is written is read back, a torn end is left out, damage is named."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.history import (
    AlteredRecord,
    Function,
    Header,
    History,
    HistoryTransaction,
    HistoryWriter,
    Operation,
    Poll,
    Send,
    TopicMode,
    read,
    topic_of,
    write,
)

HEADER = Header({"t": TopicMode(2, -1, idempotent=True)}, scenario="leader-kill", seed=7, started_ms=1_700)

KEYS = st.sampled_from(["t-0", "t-1", "other-topic-12"])
NUMBERS = st.integers(0, 2**62)
MICRO_OPERATIONS = st.one_of(
    st.builds(Send, KEYS, NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS, st.booleans()),
    st.builds(
        Poll,
        st.dictionaries(KEYS, st.lists(st.tuples(NUMBERS, NUMBERS))),
        st.none() | NUMBERS,
        st.lists(st.builds(AlteredRecord, KEYS, NUMBERS, st.sampled_from(["key", "headers", "timestamp"]))),
    ),
)
OPERATIONS = st.builds(
    Operation,
    process=NUMBERS,
    f=st.sampled_from(get_args(Function)),
    start=NUMBERS,
    end=NUMBERS,
    outcome=st.sampled_from(["ok", "fail", "info"]),
    ops=st.lists(MICRO_OPERATIONS),
    error=st.none() | st.text(),
    final=st.booleans(),
    keys=st.lists(KEYS),
    rebalanced=st.lists(KEYS),
    txn=st.none()
    | st.builds(
        HistoryTransaction,
        st.text(),
        st.none() | st.text(),
        st.dictionaries(KEYS, st.tuples(NUMBERS, NUMBERS)),
        st.none() | NUMBERS,
    ),
    uncommitted=st.booleans(),
    ends=st.dictionaries(KEYS, st.tuples(NUMBERS, NUMBERS)),
    group=st.none() | st.text(),
    generation=st.none() | NUMBERS,
    committed=st.dictionaries(KEYS, NUMBERS),
    starts=st.dictionaries(KEYS, NUMBERS),
)


def plain(value: object) -> object:
    """Sequences as lists: JSON does not tell tuples from lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@given(operations=st.lists(OPERATIONS, max_size=5))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, operations: list[Operation]
) -> None:
    path = tmp_path_factory.mktemp("history") / "history.jsonl"
    write(path, History(HEADER, operations))
    back = read(path)
    assert back.header == HEADER
    assert not back.torn
    assert plain(back.operations) == plain(operations)
    assert [[type(micro) for micro in operation.ops] for operation in back.operations] == [
        [type(micro) for micro in operation.ops] for operation in operations
    ]


def send(value: int) -> Operation:
    return Operation(1, "send", value, value + 1, "ok", [Send("t-0", value, value)])


def test_a_history_torn_at_any_byte_of_its_last_line_keeps_the_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write(path, History(HEADER, [send(1), send(2)]))
    whole = path.read_bytes()
    last_line = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last_line, len(whole)):
        path.write_bytes(whole[:end])
        history = read(path)
        assert history.operations == [send(1)]
        assert history.torn == (end > last_line)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("{\n", "line 3: not JSON"),
        ("{} {}\n", "line 3: not one JSON object"),
        ("[]\n", "line 3: not one JSON object"),
        ('{"process":1}\n', "line 3: not an operation"),
        (
            '{"process":1,"f":"send","start":1,"end":2,"outcome":"ok","ops":[["seek",1]]}\n',
            "line 3: not an operation: .*seek",
        ),
    ],
)
def test_damage_before_the_end_is_named(tmp_path: Path, damage: str, complaint: str) -> None:
    path = tmp_path / "history.jsonl"
    write(path, History(HEADER, [send(1)]))
    with path.open("a") as file:
        file.write(damage)
    with HistoryWriter(tmp_path / "rest.jsonl", HEADER) as writer:
        writer.append(send(2))
    with path.open("a") as file:
        file.writelines((tmp_path / "rest.jsonl").read_text().splitlines(keepends=True)[1:])
    with pytest.raises(ValueError, match=complaint):
        read(path)


def test_a_version_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"version":2,"topics":{}}\n')
    with pytest.raises(ValueError, match="version 2"):
        read(path)


def test_threads_append_whole_lines_and_a_reader_sees_them_before_the_writer_closes(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, HEADER) as writer:
        threads = [
            threading.Thread(target=lambda first=first: [writer.append(send(first + n)) for n in range(200)])
            for first in (0, 1_000, 2_000)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen = read(path)
    assert not seen.torn
    values = sorted(operation.ops[0].value for operation in seen.operations)  # type: ignore[union-attr]
    assert values == sorted(first + n for first in (0, 1_000, 2_000) for n in range(200))


def test_the_topic_of_a_key_may_hold_dashes() -> None:
    assert topic_of("other-topic-12") == "other-topic"
