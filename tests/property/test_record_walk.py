"""Many lanes side by side find the same records as one walk, also where values look like records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_quorum.foundation.batch import BATCH_OVERHEAD, CorruptBatchError, Record, encode_batch
from spark_connector import record_walk
from spark_connector.record_walk import RecordSpan, record_ends
from spark_connector.varints import read_varints


def body_of(values: list[bytes], first: int = 0) -> bytes:
    records = [
        Record(first + number, 1_000 + number // 3, None, value) for number, value in enumerate(values)
    ]
    return encode_batch(records)[BATCH_OVERHEAD:]


decoy = st.builds(  # bytes that look like records of a batch, with numbers of their own
    body_of, st.lists(st.binary(max_size=3), min_size=2, max_size=4), st.integers(0, 60)
)
value = st.binary(max_size=30) | decoy | st.just(bytes(20)) | st.just(b"\x0c" + bytes(6))
bodies = st.lists(
    st.lists(value, min_size=1, max_size=5).map(lambda some: some * (60 // len(some)))
    | st.lists(value, min_size=1),
    min_size=1,
    max_size=3,
)


@pytest.fixture(autouse=True)
def _few_rows_make_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_walk, "LANE_ROWS", 5)
    monkeypatch.setattr(record_walk, "FEWEST_LANES", 2)


@given(bodies)
def test_same_ends(batches: list[list[bytes]]) -> None:
    parts = [body_of(values) for values in batches]
    begins = [0, *accumulate(map(len, parts))]
    spans = [RecordSpan(begins[each], begins[each + 1], len(values)) for each, values in enumerate(batches)]
    data = np.frombuffer(b"".join(parts), np.uint8)
    expected = []
    for begin, values in zip(begins, batches, strict=False):
        # What all records before and up to one take, encoded together.
        expected += [begin + len(body_of(values[: count + 1])) for count in range(len(values))]
    assert record_ends(data, spans).tolist() == expected


@given(st.lists(value, min_size=30, max_size=60), st.data())
def test_damage_makes_no_difference_between_the_ways(values: list[bytes], data: st.DataObject) -> None:
    body = bytearray(body_of(values))
    for _ in range(data.draw(st.integers(1, 3), "damages")):
        body[data.draw(st.integers(0, len(body) - 1), "at")] = data.draw(st.integers(0, 255), "byte")
    spans = [RecordSpan(0, len(body), len(values))]
    array = np.frombuffer(body, np.uint8)
    one_by_one = list(_one_by_one(memoryview(body), spans[0]))
    try:
        ends = record_ends(array, spans)
        sizes, _ = read_varints(array, np.concatenate([[0], ends[:-1]]))
    except (IndexError, CorruptBatchError):
        assert one_by_one[-1:] != [len(body)] or len(one_by_one) != len(values)
    else:
        assert (sizes <= 0).any() or ends.tolist() == one_by_one  # the decoder refuses the former


def _one_by_one(body: memoryview, span: RecordSpan) -> Iterator[int]:
    """As long as there is a next record."""
    with contextlib.suppress(IndexError, CorruptBatchError):
        yield from record_walk.one_after_the_other(body, [span])


def test_long_runs_are_cut() -> None:
    """Else this file would test nothing."""
    body = body_of([b"%07d" % number for number in range(500)])
    lanes = record_walk.lanes_of(np.frombuffer(body, np.uint8), [RecordSpan(0, len(body), 500)])
    assert len(lanes) > 80
    assert sum(lane.rows for lane in lanes) == 500
