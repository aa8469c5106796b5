"""Long lists are processed in slices: between two of them the event loop serves other requests.

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

MANY: Final = 500
"""Structs in a response; each takes some 5 to 20 microseconds to encode."""

FIRST_SHARE: Final = 20
"""What a request does before it waits for its turn is this part of what it does in one: `turn_budget.SHARE`
of them may do it together."""

ITEMS_PER_COMMAND: Final = 1_000
GROUPS_PER_SLICE: Final = 100
"""Groups that are handled in one turn of the loop."""

Owner = TypeVar("Owner")
Item = TypeVar("Item")
Result = TypeVar("Result")


async def in_slices(
    work: LongWork, items: Iterable[Item], size: int, weight: Callable[[Item], int] = lambda _: 1
) -> AsyncIterator[Item]:
    """The items one by one, with a pause when those since the last pause weigh `size` together: `size` items
    are some milliseconds of work. The first pause comes sooner: before it nobody waits for his turn, and a
    thousand clients may ask at the same moment."""
    request: LongRequest | None = None
    left = max(size // FIRST_SHARE, 1)
    if isinstance(items, Sized) and len(items) > left:
        request = work.request()
        await request.pause()
        left = size
    for item in items:
        if left <= 0:  # not behind the last one: of few items nobody waits for a turn
            request = request or work.request()
            await request.pause()
            left = size
        yield item
        left -= weight(item)


def each_within(
    owners: Iterable[Owner], items: Callable[[Owner], Iterable[Item]]
) -> Iterator[tuple[Owner, Item | None]]:
    """Each owner, with None, and behind it what it has: owners that have nothing are work, too, and what is
    passed over without a yield knows no slices."""
    for owner in owners:
        yield owner, None
        for item in items(owner):
            yield owner, item


async def each_once(
    work: LongWork, items: Iterable[Item], size: int, key: Callable[[Item], Hashable]
) -> AsyncIterator[Item]:
    """As `in_slices`, but of those with one key the first alone. For what is described at length: to name one
    thing ten thousand times would take a few bytes each time, and its answer a gigabyte."""
    seen: set[Hashable] = set()
    async for item in in_slices(work, items, size):
        if (found := key(item)) not in seen:
            seen.add(found)
            yield item


async def in_batches(
    work: LongWork, items: Sequence[Item], ask: Callable[[Sequence[Item]], Awaitable[Iterable[Result]]]
) -> list[Result]:
    """Very many items are sent to the controller in several commands: every voter applies a command in one
    go. At least one is sent, since this controller may not be the active one."""
    results: list[Result] = []
    request = work.request()
    for start in range(0, max(len(items), 1), ITEMS_PER_COMMAND):
        results += await ask(items[start : start + ITEMS_PER_COMMAND])
        if start + ITEMS_PER_COMMAND < len(items):
            await request.pause()  # nothing else waits for a command that only validates
    return results


def is_long(response: Mapping[str, Any]) -> bool:
    """Whether it has so many structs that encoding takes milliseconds."""
    return _structs(response, MANY) <= 0


def _structs(value: object, left: int) -> int:
    """How many may still come of `left`, after those in here."""
    if isinstance(value, Mapping):
        left -= 1
        for each in value.values():
            if left > 0 and isinstance(each, list | tuple | dict):
                left = _structs(each, left)
    elif isinstance(value, list | tuple):
        for each in value:
            if left <= 0 or not isinstance(each, Mapping):
                break
            left = _structs(each, left)
    return left
