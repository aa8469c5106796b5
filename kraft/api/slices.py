"""Long lists are processed in slices: between two slices the event loop serves other requests.

A handler whose requests may have very many items iterates over them with `in_slices`, and a response that
`is_long` is encoded outside the loop (dispatch.py). So no client, however large its request, delays the
others by more than a few milliseconds; many such clients take turns (long_work.py).
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from typing import Any, Final, TypeVar

from kraft.api.long_work import LongRequest, LongWork
from kraft.wire.bridge import Message

MANY: Final = 500
"""A response with this many structs is long; each takes some 5 to 20 microseconds to encode."""

FIRST_SHARE: Final = 20
"""Before a request waits for its first turn it does only 1/FIRST_SHARE of a slice, because
`turn_budget.SHARE` requests may do so together."""

VALUES_AS_ONE: Final = 20
"""So many strings or numbers take the time of a struct."""

VALUES_PER_SLICE: Final = 2_000
"""Strings or numbers, such as those of a filter, that are taken from a request in one turn of the loop."""

ITEMS_PER_COMMAND: Final = 1_000
GROUPS_PER_SLICE: Final = 100
"""Groups that are handled in one turn of the loop."""
LETTERS: Final = 64
"""More than most names of groups have."""

Item = TypeVar("Item")
Result = TypeVar("Result")


async def in_slices(
    work: LongWork, items: Iterable[Item], size: int, weight: Callable[[Item], int] = lambda _: 1
) -> AsyncIterator[Item]:
    """The items one by one, with a pause whenever those since the last pause weigh `size` together, which
    should be some milliseconds of work. The first pause comes sooner, because requests wait for turns only
    from then on, and a thousand clients may ask at the same moment: before the first item, if that alone
    weighs more than a first share."""
    request: LongRequest | None = None
    left = first_share = max(size // FIRST_SHARE, 1)
    if isinstance(items, Sized) and len(items) > left:
        request = work.request()
        await request.pause()
        left = size
    for item in items:
        weighs = weight(item)
        if left <= 0:  # not after the last item, so that a few items need no turn at all
            request = request or work.request()
            await request.pause()
            left = size
        elif request is None and left == first_share and weighs * FIRST_SHARE > size:
            await work.first(weighs / size)
        elif request is None and weighs > left:
            request = work.request()
            await request.pause()
            left = size
        yield item
        left -= weighs


def each_within(owners: Iterable[Message], items: str) -> Iterator[tuple[Message, Any | None]]:
    """Each owner with None, followed by the owner with each item of its field `items`. Owners without items
    take time too, and `in_slices` can count only what is yielded."""
    for owner in owners:
        yield owner, None
        for item in getattr(owner, items):
            yield owner, item


def of_name(name: str) -> int:
    """The weight of a name that is hashed as Java does it, letter by letter: as long as may be, 5 ms."""
    return 1 + len(name) // LETTERS


async def each_once(
    work: LongWork,
    items: Iterable[Item],
    size: int,
    key: Callable[[Item], Hashable],
    weight: Callable[[Item], int] = lambda _: 1,
) -> AsyncIterator[Item]:
    """As `in_slices`, but only the first item of each key. For items with long answers: naming one thing ten
    thousand times takes a few bytes each time, and would be answered with a gigabyte."""
    seen: set[Hashable] = set()
    async for item in in_slices(work, items, size, weight):
        if (found := key(item)) not in seen:
            seen.add(found)
            yield item


async def in_batches(
    work: LongWork,
    items: Sequence[Item],
    ask: Callable[[Sequence[Item]], Awaitable[Iterable[Result]]],
    weight: Callable[[Item], int] = lambda _: 1,
) -> list[Result]:
    """Send very many items to the controller in several commands, because every voter applies a command in
    one go, and others wait meanwhile: none weighs more than ITEMS_PER_COMMAND and its last item. At least one
    command is sent, since this controller may not be the active one."""
    results: list[Result] = []
    request = work.request()
    start = 0
    all_weigh = sum(map(weight, items[:ITEMS_PER_COMMAND]))
    if all_weigh * FIRST_SHARE > ITEMS_PER_COMMAND:
        await work.first(all_weigh / ITEMS_PER_COMMAND)
    while True:
        end, left = start, ITEMS_PER_COMMAND
        while end < len(items) and left > 0:
            left -= weight(items[end])
            end += 1
        results += await ask(items[start:end])
        if end >= len(items):
            return results
        await request.pause()  # a command that only validates does not wait by itself
        start = end


def is_long(response: Mapping[str, Any]) -> bool:
    """Whether it has so many structs, strings and numbers that encoding takes milliseconds."""
    return _structs(response, MANY) <= 0


def _structs(value: object, left: int) -> int:
    """`left`, less the number of structs in `value` and what its other values take; stops counting at 0."""
    if isinstance(value, Mapping):
        left -= 1
        for each in value.values():
            if left > 0 and isinstance(each, list | tuple | dict):
                left = _structs(each, left)
    elif isinstance(value, list | tuple):
        if value and not isinstance(value[0], Mapping):
            return left - len(value) // VALUES_AS_ONE
        for each in value:
            if left <= 0:
                break
            left = _structs(each, left)
    return left
