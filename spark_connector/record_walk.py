"""Where each record of a batch begins: the one thing in it that has to be read in order.

A record begins with its length, so where the next one begins is known when this length has been read. One
chain after the other that is a loop in Python, 150 ns a record, three times as much as all its fields cost.
Many chains side by side (lanes) are a loop over numpy operations, each of which takes a step in all lanes:
30 ns a record with some hundred lanes. Every batch is a lane, and small ones make enough of them. Long ones
are cut: somewhere in the middle, bytes are found that look like two records with consecutive offsets. Such
a guess is proved when the lane before it ends right there, with as many records as the offsets say;
otherwise the loop in Python decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from metadata_quorum.foundation.batch import CorruptBatchError
from metadata_quorum.foundation.primitives import read_uvarint
from spark_connector.varints import Bytes, Positions, read_if_varints, read_varints

LANE_ROWS: Final = 128
"""About how many records a lane has that was cut from a longer one."""
LONGEST_TO_CUT_BYTES: Final = 256
"""Average length of a record above which looking for one in the middle costs more than it saves."""
FEWEST_LANES: Final = 64
"""Fewer side by side are slower than one after the other."""

SHORTEST_RECORD_BYTES: Final = 7
"""The length, attributes, two deltas, two lengths, the count of headers."""
_FIELDS_BYTES: Final = 32
"""What the fields before the key take at most: 1 + 10 + 5, after a length of 5."""


class RecordSpan(NamedTuple):
    """`rows` records, one after the other: all of a batch, or those of a lane. They fill the bytes from
    `begin` to `end` of a buffer."""

    begin: int
    end: int
    rows: int


def record_ends(data: Bytes, spans: list[RecordSpan]) -> Positions:
    """Where each record ends, for all records of all spans, one span after the other.

    Raises CorruptBatchError unless every span ends where it should. That all lengths are positive is for the
    caller to check: only then is there just one way from the begin of a span to its end.
    """
    lanes = lanes_of(data, spans)
    total = sum(span.rows for span in spans)
    if total >= FEWEST_LANES * max(lane.rows for lane in lanes):
        ends = _side_by_side(data, lanes)
        if ends is not None:
            return ends
    try:
        return np.fromiter(one_after_the_other(data.data, spans), np.int64, total)
    except (IndexError, ValueError, OverflowError) as error:
        raise CorruptBatchError(f"the records' lengths contradict the batch: {error}") from None


def one_after_the_other(buffer: memoryview, spans: list[RecordSpan]) -> Iterator[int]:
    """Raises CorruptBatchError."""
    for span in spans:
        at = span.begin
        for _ in range(span.rows):
            byte = buffer[at]
            if byte < 0x80:
                at += 1 + (byte >> 1)
            else:
                second = buffer[at + 1]
                if second < 0x80:
                    at += 2 + ((byte & 0x7F | second << 7) >> 1)
                else:
                    at = _end_of_long(buffer, at)
            yield at
        if at != span.end:
            raise CorruptBatchError(f"{span.rows} records end {at - span.end} bytes off the batch's end")


def _end_of_long(buffer: memoryview, at: int) -> int:
    """Of a record whose length takes three bytes or more. Shorter ones are read in the loop: they are nearly
    all, and a call costs more than the number."""
    raw, at = read_uvarint(buffer, at)
    return at + (raw >> 1)


def _side_by_side(data: Bytes, lanes: list[RecordSpan]) -> Positions | None:
    """None where a lane does not end as it should."""
    begins, ends, rows = (np.array(column, np.int64) for column in zip(*lanes, strict=True))
    order = np.argsort(-rows, kind="stable")  # so that those which are done are at the end
    at, left = begins[order], -rows[order]
    slots = (np.cumsum(rows) - rows)[order]
    record_ends = np.empty(rows.sum(), np.int64)
    try:
        for step in range(rows.max()):
            going = int(np.searchsorted(left, -step))
            if going < len(at):
                at, slots = at[:going], slots[:going]
            sizes, at = read_varints(data, at)
            at += sizes
            record_ends[slots + step] = at
    except (IndexError, CorruptBatchError):
        return None
    return record_ends if (record_ends[np.cumsum(rows) - 1] == ends).all() else None


# ---- cutting long spans ------------------------------------------------------------------------------


def lanes_of(data: Bytes, spans: list[RecordSpan]) -> list[RecordSpan]:
    """The spans, in pieces where they are long and their records short."""
    pieces = [_pieces(span) for span in spans]
    if max(pieces) == 1:
        return spans
    guesses = np.concatenate(
        [
            span.begin + np.arange(1, count) * ((span.end - span.begin) // count)
            for span, count in zip(spans, pieces, strict=True)
        ]
    )
    of_span = np.repeat(np.arange(len(spans)), [count - 1 for count in pieces])
    window = max(
        2 * (span.end - span.begin) // span.rows
        for span, count in zip(spans, pieces, strict=True)
        if count > 1
    )
    which, begins, numbers = _records_behind(data, guesses, window)
    bounds = np.searchsorted(of_span[which], np.arange(len(spans) + 1)).tolist()
    return [
        lane
        for each, span in enumerate(spans)
        for lane in _cut(
            span, *(found[bounds[each] : bounds[each + 1]].tolist() for found in (begins, numbers))
        )
    ]


def _pieces(span: RecordSpan) -> int:
    if span.end - span.begin > span.rows * LONGEST_TO_CUT_BYTES:
        return 1
    return max(1, span.rows // LANE_ROWS)


def _cut(span: RecordSpan, begins: list[int], numbers: list[int]) -> Iterator[RecordSpan]:
    """At those of the found records that can be true all together."""
    begin, first = span.begin, 0
    for at, number in zip(begins, numbers, strict=True):
        if begin < at < span.end and first < number < span.rows:
            yield RecordSpan(begin, at, number - first)
            begin, first = at, number
    yield RecordSpan(begin, span.end, span.rows - first)


def _records_behind(data: Bytes, guesses: Positions, window: int) -> tuple[Positions, Positions, Positions]:
    """Behind guesses, what looks like a record that another follows: behind which guess, where it begins, and
    its number in the batch, which is its offset delta."""
    guesses = guesses[: np.searchsorted(guesses, len(data) - window - _FIELDS_BYTES)]
    near = sliding_window_view(data, window + 2)[guesses]
    first, second, third = near[:, :-2], near[:, 1:-1], near[:, 2:]
    no_attributes = np.where(first < 0x80, second, third) == 0  # behind a length of one byte or two
    which, column = np.nonzero(no_attributes & (first & 1 == 0))
    at = guesses[which] + column
    size, body, _ = read_if_varints(data, at)
    follower = body + size
    likely = (size >= SHORTEST_RECORD_BYTES - 1) & (follower > at) & (follower < len(data) - _FIELDS_BYTES)
    which, at, body, follower = which[likely], at[likely], body[likely], follower[likely]
    follower = read_if_varints(data, follower)[1]
    number = _offset_delta(data, body)
    likely = (data[follower] == 0) & (number + 1 == _offset_delta(data, follower))
    which, at, number = which[likely], at[likely], number[likely]
    which, firsts = np.unique(which, return_index=True)
    return which, at[firsts], number[firsts]


def _offset_delta(data: Bytes, body: Positions) -> Positions:
    after_timestamp = read_if_varints(data, body + 1)[1]
    return read_if_varints(data, after_timestamp)[0]
