"""What is no message of an API, or no answer to what was asked, and what no message can say; beside
message.py, which loads schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")


class MalformedMessage(ValueError):
    """Bytes that are no message of that API and version, or a message that does not answer ours."""


class UnencodableMessage(ValueError):
    """Values that the API's version cannot represent."""


def only(answered: Sequence[ItemT]) -> ItemT:
    """What is answered about the one thing that was asked about. Raises `MalformedMessage`."""
    if len(answered) != 1:
        raise MalformedMessage(f"an answer about {len(answered)} things, where one was asked about")
    return answered[0]
