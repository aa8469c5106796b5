"""Long lists are worked through in slices: between two of them the loop is everybody else's.

A handler that may be asked about very many things goes through them by `in_slices`, and no client, however
much it names in one request, keeps the others waiting for more than a few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def in_slices(
    items: Iterable[Item], size: int, weight: Callable[[Item], int] = lambda _: 1
) -> AsyncIterator[Item]:
    """The items one by one; a pause when those since the last one weigh `size` together. A caller says how
    many of its items are some milliseconds' work."""
    left = size
    for item in items:
        yield item
        left -= weight(item)
        if left <= 0:
            await asyncio.sleep(0)
            left = size
