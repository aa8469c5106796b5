"""May this block? A type: what may wait for a disk, or unpack much, asks its caller for a `MayBlock`.

    loop:      await blocking(work)   --.
    executor:  work(MayBlock)  <--------'  -> log.identify(may_block) -> disk.write_atomic(..., may_block)

On the loop there is none, so mypy refuses the call; `blocking` (kraft/api/context.py) hands one to
what it runs in the executor. Code that makes its own says why: before the node serves, nothing waits for the
loop, and Raft's fsync is on the loop by design. A test lists them.

Lowest floor: the `Disk` port asks for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MayBlock:
    """Code that holds one may block."""

    why: str


NOT_SERVING: Final = MayBlock("no node serves yet")
RAFT: Final = MayBlock(
    "metadata is small and rare, and its fsync comes before the message that depends on it"
)


class Blocking(Protocol):
    """Runs work outside the loop."""

    def __call__(self, work: Callable[[MayBlock], Result], /) -> Awaitable[Result]: ...
