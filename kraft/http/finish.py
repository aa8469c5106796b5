"""What is carried out though its reader goes meanwhile.

A request ends when its connection does: nobody waits in a line for an answer that nobody will read. But what
a thread has begun cannot be called off, and what is written is written.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

Result = TypeVar("Result")


async def to_its_end(work: asyncio.Future[Result]) -> Result:
    """Where it is cancelled, it ends with its work."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.gather(work, return_exceptions=True)
        raise
