"""Limits of one message beyond its length in bytes.

A few bytes name a topic or a partition, and each of them is some work: all that a request names is counted
before it is processed.
"""

from __future__ import annotations

from typing import Final

MAX_PARTITIONS: Final = 200_000
"""Partitions of one Fetch request, if the reader has no other bound; some 50 MB of objects."""
LONGEST_ERROR_MESSAGE: Final = 8_000
"""Characters of an error message. Each takes four bytes at most."""


def check_count(count: int, most: int, before: int = 0) -> None:
    """Raises `ValueError` for more topics or partitions than a message may name, `before` of which it has
    named already, and for an array that is null."""
    if count < 0:
        raise ValueError("an array that must not be null")
    if before + count > most:
        raise ValueError(f"more than {most} topics or partitions")


def shortened(message: str) -> str:
    """An error message may quote a name that is as long as strings can be."""
    return message if len(message) <= LONGEST_ERROR_MESSAGE else f"{message[:LONGEST_ERROR_MESSAGE]}..."
