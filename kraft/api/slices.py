"""Long lists are worked through in slices: between two of them the loop is everybody else's.

A handler that may be asked about very many things goes through them by `in_slices`, and an answer that
`is_long` is put into bytes beside the loop (dispatch.py). So no client, however much it names in one request,
keeps the others waiting for more than a few milliseconds; and many such clients take turns (long_work.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, Final, TypeVar

from kraft.api.long_work import LongWork

MANY: Final = 500
"""Structs in an answer; each takes some 5 to 20 microseconds to put into bytes."""

ITEMS_PER_COMMAND: Final = 1_000
GROUPS_PER_SLICE: Final = 100
"""Groups that are looked at between two turns of the loop."""

Item = TypeVar("Item")
Result = TypeVar("Result")


async def in_slices(
    items: Iterable[Item], size: int, weight: Callable[[Item], int] = lambda _: 1
) -> AsyncIterator[Item]:
    """The items one by one; a pause when those since the last one weigh `size` together. A caller says how
    many of its items are some milliseconds' work."""
    work: LongWork | None = None
    if isinstance(items, Sized) and len(items) > size:
        work = LongWork()
        await work.pause()
    left = size
    for item in items:
        yield item
        left -= weight(item)
        if left <= 0:
            work = work or LongWork()
            await work.pause()
            left = size


async def in_batches(
    items: Sequence[Item], ask: Callable[[Sequence[Item]], Awaitable[Iterable[Result]]]
) -> list[Result]:
    """What the controller is asked to do for very many items it is asked so many at a time: a command is
    judged at one go, by every voter. It is asked at least once, for it may not be the active one."""
    results: list[Result] = []
    work = LongWork()
    for start in range(0, max(len(items), 1), ITEMS_PER_COMMAND):
        results += await ask(items[start : start + ITEMS_PER_COMMAND])
        if start + ITEMS_PER_COMMAND < len(items):
            await work.pause()  # what is only to be judged is not waited for
    return results


def is_long(response: Mapping[str, Any]) -> bool:
    """Whether there are so many structs in it that to write them takes milliseconds."""
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
