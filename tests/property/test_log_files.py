"""Batches and logs under arbitrary content and arbitrary damage."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from data_plane.log.config import LogConfig
from data_plane.log.recovery import LogCorruptError
from metadata_quorum.foundation.batch import (
    CorruptBatchError,
    Record,
    decode_batch,
    encode_batch,
    read_header,
)
from tests.support.logs import lead, open_log, read_all
from tests.support.suite.examples import examples

OPTIONAL_BYTES = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(-1),
        st.integers(min_value=0, max_value=2**45),
        OPTIONAL_BYTES,
        OPTIONAL_BYTES,
        st.lists(st.tuples(st.text(max_size=10), OPTIONAL_BYTES), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@given(records=RECORDS, codec=st.integers(0, 4), base_offset=st.integers(0, 2**40))
def test_batches_come_back(records: list[Record], codec: int, base_offset: int):
    data = encode_batch(records, base_offset=base_offset, compression=codec)
    decoded = decode_batch(data)
    assert [r._replace(offset=-1) for r in decoded] == records
    assert [r.offset for r in decoded] == list(range(base_offset, base_offset + len(records)))


@given(records=RECORDS)
def test_kio_reads_the_same(records: list[Record]):
    found, size = read_batch(data := encode_batch(records, base_offset=7, leader_epoch=2), 0)
    assert size == len(data)
    assert (found.base_offset, found.partition_leader_epoch) == (7, 2)
    assert [(r.offset, r.key, r.value) for r in found.records] == [
        (7 + i, r.key, r.value) for i, r in enumerate(records)
    ]
    assert [[(h.key, h.value) for h in r.headers] for r in found.records] == [
        [(key.encode(), value) for key, value in r.headers] for r in records
    ]


@given(records=RECORDS, damage=st.data())
def test_a_damaged_batch_is_an_error_not_a_crash(records: list[Record], damage: st.DataObject):
    data = bytearray(encode_batch(records, compression=damage.draw(st.integers(0, 4))))
    for _ in range(damage.draw(st.integers(1, 4))):
        data[damage.draw(st.integers(8, len(data) - 1))] = damage.draw(st.integers(0, 255))
    try:
        decode_batch(data, max_bytes=1 << 20)
    except CorruptBatchError:
        pass


@pytest.mark.row("L7")
@settings(max_examples=examples(60))
@given(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=12), cut=st.data())
def test_torn_tail_keeps_whole_batches(sizes: list[int], cut: st.DataObject):
    with tempfile.TemporaryDirectory() as name:
        log = open_log(Path(name), LogConfig(index_interval_bytes=50))
        ends = [0]
        for size in sizes:
            lead(log, b"x" * size)
            ends.append(log.size)
        path = Path(log.segments[0].path)
        log.close()
        length = cut.draw(st.integers(0, ends[-1]))
        path.write_bytes(path.read_bytes()[:length])
        again = open_log(Path(name))
        assert again.size == max(end for end in ends if end <= length)
        assert again.log_end_offset == len(read_all(again)) == ends.index(again.size)
        again.close()


@pytest.mark.row("L7")
@settings(max_examples=examples(60))
@given(sizes=st.lists(st.integers(0, 120), min_size=2, max_size=12), where=st.data())
def test_a_flip_before_the_last_batch_is_never_truncated(sizes: list[int], where: st.DataObject):
    with tempfile.TemporaryDirectory() as name:
        log = open_log(Path(name))
        for size in sizes:
            lead(log, b"x" * size)
        path = Path(log.segments[0].path)
        last = log.segments[0].locate(len(sizes) - 1, log.segments[0].file.read)
        log.close()
        data = bytearray(path.read_bytes())
        position = where.draw(st.integers(0, last - 1))
        data[position] ^= 1 << where.draw(st.integers(0, 7))
        path.write_bytes(data)
        try:
            again = open_log(Path(name))
        except LogCorruptError:
            pass
        else:
            assert _lies_outside_the_crc(data, position)
            again.close()
        assert path.read_bytes() == bytes(data)


def _lies_outside_the_crc(data: bytearray, position: int) -> bool:
    start = 0
    while start + read_header(data, start).size <= position:
        start += read_header(data, start).size
    return position - start < 16
