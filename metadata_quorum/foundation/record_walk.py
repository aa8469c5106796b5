"""A walk over the records of an opened batch, without decoding them: do they agree with its header?

A leader checks every batch before it appends it (data_plane/log/validation.py), so this is a hot path
in plain Python: half a microsecond a record. Neighbours of one size and layout are checked together: their
fields are columns of bytes, one slice and one comparison in C for all of them, in a tenth of the time.

    records -> survey -> Survey, what they have in common; CorruptBatchError where they are not whole
            `> record_deltas -> one by one, to name the bad ones

The layout of a record is in metadata_quorum/foundation/batch.py. Varints are read here and not by
primitives.py, because a call costs more than the number. They stay zigzag-coded: an even one is positive, an
odd one negative.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from metadata_quorum.foundation.batch import CorruptBatchError

Records = bytes | bytearray
Spend = Callable[[int], None]

_TWO_BYTES: Final = 0x3FFF
"""The greatest number that a varint of two bytes holds."""
_VARINT_BYTES: Final = 5
_VARLONG_BYTES: Final = 10
_LONG: Final = (1 << 64) - 1
_INT64_BYTES: Final = 8

_FIRST_RUN: Final = 512
_GROWTH: Final = 8
_TRIED_AGAIN_AFTER: Final = 64
_LONGEST_RUN: Final = 4096
_SPENT_AHEAD: Final = 256
_RUN_PER_STEP: Final = 8
_SHORTEST_RUN: Final = 8
_WORTH_A_RUN: Final = 32
_NO_RUN: Final = (0, 1 << 63, -(1 << 63))
_ALIKE_BEFORE: Final = 3
"""So many neighbours of one size make it likely that a run of them follows."""


class Survey(NamedTuple):
    """What is true of all records of a batch."""

    least_delta: int
    """The least difference of their timestamps from the batch's base timestamp."""
    greatest_delta: int
    all_keyed: bool
    in_order: bool
    """Every record's offset delta is its place in the batch."""


class _RecordLayout(NamedTuple):
    """Where the fields of a record begin, counted from the beginning of the record."""

    size: int
    timestamp: int
    offset: int
    key: int
    value: int


class RecordDeltas(NamedTuple):
    """One record, as far as it can be wrong."""

    timestamp_delta: int
    offset_delta: int
    has_key: bool


def survey(records: Records, count: int, spend: Spend) -> Survey:
    """Walk over all. Raises CorruptBatchError where they are not whole, or not `count`. `spend` is called
    with the number of steps that come next (a record or a header is one, in a run less), and may raise."""
    try:
        if count < _WORTH_A_RUN:
            spend(count)
            pos, _, found, _ = _some(records, 0, 0, count, count, spend)
        else:
            pos, found = _many(records, count, spend)
    except IndexError:
        raise CorruptBatchError(f"the batch ends before its {count} records do") from None
    if pos != len(records):
        raise CorruptBatchError(f"{len(records) - pos} bytes left after {count} records")
    return found


def _many(records: Records, count: int, spend: Spend) -> tuple[int, Survey]:
    """What is true of many records, and where they end."""
    pos = place = try_at = 0
    least, greatest = _NO_RUN[1:]
    all_keyed = in_order = True
    while place < count:
        stop = min(place + _SPENT_AHEAD, count)
        spend(stop - place)
        runs_from = try_at if in_order and count - place >= _WORTH_A_RUN else count
        pos, place, found, shape = _some(records, pos, place, stop, runs_from, spend)
        least, greatest = min(least, found.least_delta), max(greatest, found.greatest_delta)
        all_keyed, in_order = all_keyed and found.all_keyed, in_order and found.in_order
        rows = _FIRST_RUN
        while shape is not None:
            rows = min(rows, count - place, (len(records) - pos) // shape.size)
            run, run_least, run_greatest = _run(records, pos, rows, place, shape)
            spend(run // _RUN_PER_STEP)
            least, greatest = min(least, run_least), max(greatest, run_greatest)
            pos += run * shape.size
            place += run
            if not run or run < rows or place == count:
                shape = None
                try_at = place if run else place + _TRIED_AGAIN_AFTER
            rows = min(_GROWTH * rows, _LONGEST_RUN)
    return pos, Survey(least, greatest, all_keyed, in_order)


def _some(  # noqa: C901, PLR0915 one loop: it is hot
    records: Records, pos: int, place: int, stop: int, runs_from: int, spend: Spend
) -> tuple[int, int, Survey, _RecordLayout | None]:
    """One by one up to `stop`, or, from `runs_from` on, to where a run is likely: then its shape comes, too.
    Varints of one and two bytes are read right here, longer ones by a call."""
    least, greatest = _NO_RUN[1:]
    all_keyed = in_order = True
    size = alike = 0
    while place < stop:
        begin = pos
        number = records[pos]
        pos += 1
        if number >= 0x80:
            number += (records[pos] - 1) << 7
            pos += 1
            if number > _TWO_BYTES:
                number, pos = _long_varint(records, begin)
        if number & 1:
            raise CorruptBatchError(f"record {place} claims a negative size")
        end = pos + (number >> 1)
        timestamp_at = pos = pos + 1  # after the attributes, of which none is defined
        number = records[pos]
        pos += 1
        if number >= 0x80:
            number += (records[pos] - 1) << 7
            pos += 1
            if number > _TWO_BYTES:
                number, pos = _long_varint(records, timestamp_at, _VARLONG_BYTES)
        delta = number >> 1 if not number & 1 else ~(number >> 1)
        if delta > greatest:
            greatest = delta
        if delta < least:
            least = delta
        offset_at = pos
        number = records[pos]
        pos += 1
        if number >= 0x80:
            number += (records[pos] - 1) << 7
            pos += 1
            if number > _TWO_BYTES:
                number, pos = _long_varint(records, offset_at)
        if number != place << 1:
            in_order = False
        key_at = pos
        number = records[pos]
        pos += 1
        if number >= 0x80:
            number, pos = _long_varint(records, key_at)
        if number & 1:
            all_keyed = False
        else:
            pos += number >> 1
        value_at = pos
        number = records[pos]
        pos += 1
        if number >= 0x80:
            number += (records[pos] - 1) << 7
            pos += 1
            if number > _TWO_BYTES:
                number, pos = _long_varint(records, value_at)
        if not number & 1:
            pos += number >> 1
        if records[pos]:
            pos = _skip_headers(records, pos, spend)
            alike = -1
        else:
            pos += 1
        if pos != end:
            raise CorruptBatchError(f"record {place} claims to end {end - pos} bytes off its fields")
        place += 1
        if pos - begin != size:
            size, alike = pos - begin, 0
        else:
            alike += 1
            if alike >= _ALIKE_BEFORE and place >= runs_from:
                shape = _RecordLayout(
                    size, timestamp_at - begin, offset_at - begin, key_at - begin, value_at - begin
                )
                return pos, place, Survey(least, greatest, all_keyed, in_order), shape
    return pos, place, Survey(least, greatest, all_keyed, in_order), None


def _long_varint(records: Records, pos: int, most: int = _VARINT_BYTES) -> tuple[int, int]:
    """Zigzag-coded, and where it ends."""
    number = 0
    for i in range(most):
        byte = records[pos + i]
        number |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return number & _LONG, pos + i + 1
    raise CorruptBatchError(f"varint of more than {most} bytes")


def _skip_headers(records: Records, pos: int, spend: Spend) -> int:
    number, pos = _long_varint(records, pos)
    if number & 1:
        raise CorruptBatchError(f"record with {~(number >> 1)} headers")
    count = number >> 1
    if count > len(records) - pos:
        raise CorruptBatchError(f"record with {count} headers in {len(records) - pos} bytes")
    spend(count)
    for _ in range(count):
        number, pos = _long_varint(records, pos)
        if number & 1:
            raise CorruptBatchError("record header without a key")
        number, pos = _long_varint(records, pos + (number >> 1))
        if not number & 1:
            pos += number >> 1
    return pos


def record_deltas(records: Records, count: int) -> Iterator[RecordDeltas]:
    """The deltas of records that have been surveyed."""
    pos = 0
    for _ in range(count):
        size, pos = _long_varint(records, pos)
        end = pos + (size >> 1)
        delta, pos = _long_varint(records, pos + 1, _VARLONG_BYTES)
        offset, pos = _long_varint(records, pos)
        key, _ = _long_varint(records, pos)
        yield RecordDeltas(_signed(delta), _signed(offset), not key & 1)
        pos = end


def _signed(number: int) -> int:
    return ~(number >> 1) if number & 1 else number >> 1


# --- runs: records of one size whose fields are at the same positions ---------------------------


_MIDDLE_BYTES: Final = bytes(range(0x80, 0x100))
_LAST_BYTES: Final = bytes(range(0x80))
_FIRST_OF_POSITIVE: Final = bytes(range(0x80, 0x100, 2))
_ONLY_OF_POSITIVE: Final = bytes(range(0, 0x80, 2))
_DESCENDING: Final = _ONLY_OF_POSITIVE[::-1]

# The varints of the offset deltas 0, 1, 2…, byte by byte:
#   n < 2^6      2n
#   n < 2^13     0x80 | 2n & 0x7f, n >> 6
#   n < 2^20     0x80 | 2n & 0x7f, 0x80 | n >> 6 & 0x7f, n >> 13
_ONE_BYTE_END: Final = 1 << 6
_TWO_BYTES_END: Final = 1 << 13
_THREE_BYTES_END: Final = 1 << 20
_LOW: Final = _FIRST_OF_POSITIVE * (_LONGEST_RUN // _ONE_BYTE_END + 1)
_HIGH: Final = bytes(n >> 6 for n in range(_TWO_BYTES_END))
_MIDDLE: Final = bytes(0x80 | byte for byte in _HIGH)


def _run(records: Records, begin: int, rows: int, place: int, shape: _RecordLayout) -> tuple[int, int, int]:
    """How many records from `begin` on, up to `rows`, are like the one before it; the least and the greatest
    of their timestamp deltas, none of which is negative."""
    rows = min(rows, _same_width(place))
    before = begin - shape.size
    end = begin + rows * shape.size
    if shape.offset - shape.timestamp > _INT64_BYTES:
        return _NO_RUN  # `_extremes` has no room for it; nobody's clock gives such a time
    for at in _alike(records, before, shape):
        column = records[begin + at : end : shape.size]
        same = bytes((records[before + at],))
        if column != same * rows:
            rows = _prefix(column, same)
            end = begin + rows * shape.size
    times = range(shape.timestamp, shape.offset)
    for at in times:
        rows = _prefix(records[begin + at : end : shape.size], _bytes_at(at, times))
        end = begin + rows * shape.size
    if rows < _SHORTEST_RUN:
        return _NO_RUN
    offsets = [records[begin + at : end : shape.size] for at in range(shape.offset, shape.key)]
    if offsets != _offset_columns(place, rows):
        return _NO_RUN
    least, greatest = _extremes([records[begin + at : end : shape.size] for at in times])
    return rows, least, greatest


def _alike(records: Records, before: int, shape: _RecordLayout) -> list[int]:
    """Positions of the bytes that are the same in all of a run: the lengths, and the count of headers, 0."""
    same = [*range(shape.timestamp - 1), shape.size - 1]
    for at in (shape.key, shape.value):
        while records[before + at] >= 0x80:
            same.append(at)
            at += 1
        same.append(at)
    return same


def _prefix(column: Records, allowed: bytes) -> int:
    """How many bytes at the column's beginning are among those allowed."""
    others = column.translate(None, allowed)  # much faster than to strip, and mostly there are none
    return len(column) - len(column.lstrip(allowed)) if others else len(column)


def _bytes_at(at: int, varint: range) -> bytes:
    """The bytes that a positive varint of that width may have at that position."""
    if at == varint[0]:
        return _ONLY_OF_POSITIVE if len(varint) == 1 else _FIRST_OF_POSITIVE
    return _LAST_BYTES if at == varint[-1] else _MIDDLE_BYTES


def _same_width(place: int) -> int:
    """How many offset deltas from `place` on have varints of one width, and of three bytes one last byte."""
    if place < _ONE_BYTE_END:
        return _ONE_BYTE_END - place
    return _TWO_BYTES_END - place % _TWO_BYTES_END if place < _THREE_BYTES_END else 0


def _offset_columns(place: int, rows: int) -> list[bytes]:
    if place < _ONE_BYTE_END:
        return [_ONLY_OF_POSITIVE[place : place + rows]]
    low = place % _ONE_BYTE_END
    high = place % _TWO_BYTES_END
    if place < _TWO_BYTES_END:
        return [_LOW[low : low + rows], _HIGH[high : high + rows]]
    return [_LOW[low : low + rows], _MIDDLE[high : high + rows], bytes((place >> 13,)) * rows]


def _extremes(columns: list[Records]) -> tuple[int, int]:
    """The least and the greatest number of varints whose bytes are in columns, all of one width."""
    rows, width = len(columns[0]), len(columns)
    if all(column.count(column[0]) == rows for column in columns):
        only = _positive(bytes(column[0] for column in columns))
        return only, only
    if width == 1:
        return _first_in(columns[0], _ONLY_OF_POSITIVE) >> 1, _first_in(columns[0], _DESCENDING) >> 1
    packed = bytearray(rows * 8)
    for i, column in enumerate(columns):
        packed[i if sys.byteorder == "little" else 7 - i :: 8] = column
    numbers = memoryview(packed).cast("Q")
    least, greatest = (number.to_bytes(8, "little")[:width] for number in (min(numbers), max(numbers)))
    return _positive(least), _positive(greatest)


def _first_in(column: Records, numbers: bytes) -> int:
    """The first of the numbers that the column has: to look for one takes C next to no time."""
    return next(number for number in numbers if number in column)


def _positive(varint: bytes) -> int:
    return sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(varint)) >> 1
