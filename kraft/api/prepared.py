"""What a node makes of a whole image, beside the loop: of tens of thousands of things it takes long.

a snapshot, in another thread -> decoded -> prepare --.
the loop: the image comes to its subscribers -> take <-'
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

PartT = TypeVar("PartT")
MadeT = TypeVar("MadeT")


class Prepared(Generic[PartT, MadeT]):
    """Of one part of the images, which are immutable: the same part gives the same."""

    def __init__(self, make: Callable[[PartT], MadeT]) -> None:
        self._make = make
        self._made: tuple[PartT, MadeT] | None = None

    def prepare(self, part: PartT) -> None:
        """In any thread, before the image with that part is taken."""
        with suppress(Exception):  # whoever finds nothing prepared makes it anew, and reports what it meets
            self._made = part, self._make(part)

    def take(self, part: PartT) -> MadeT | None:
        """None where it was not prepared. Nobody else gets it, so it may be changed."""
        made, self._made = self._made, None
        return made[1] if made is not None and made[0] is part else None
