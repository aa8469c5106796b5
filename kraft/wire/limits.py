"""Limits of one message beyond its length in bytes.

A few bytes name a topic or a partition, and each of them is some work: all that a request names is counted
before it is processed. A Produce or a Fetch with a name that no topic can have is refused as a whole: fetch
sessions and errors would keep it, 32 KB long and a character beyond ASCII in four times its bytes.
"""

from __future__ import annotations

from typing import Final

from metadata_quorum.foundation.model import MAX_TOPIC_NAME
from metadata_quorum.foundation.primitives import INT16, read_uvarint

MAX_PARTITIONS: Final = 200_000
"""Partitions of one Fetch request, if the reader has no other bound; some 50 MB of objects."""
LONGEST_ERROR_MESSAGE: Final = 8_000
"""Characters of an error message. Each takes four bytes at most."""


class NamesMore(ValueError):
    """Than whoever reads the message is to take at once."""


def check_count(count: int, most: int, before: int = 0) -> None:
    """Raises `NamesMore` for more topics or partitions than are to be read, `before` of which have been read
    already, and `ValueError` for an array that is null."""
    if count < 0:
        raise ValueError("an array that must not be null")
    if before + count > most:
        raise NamesMore(f"more than {most} topics or partitions")


def read_topic_name(body: memoryview, pos: int) -> tuple[str, int]:
    """Raises `ValueError` for one that is too long for a topic, or not ASCII, and for null."""
    (length,) = INT16.unpack_from(body, pos)
    return _topic_name(body, pos + INT16.size, length)


def read_compact_topic_name(body: memoryview, pos: int) -> tuple[str, int]:
    """As `read_topic_name`."""
    length, pos = read_uvarint(body, pos)
    return _topic_name(body, pos, length - 1)


def _topic_name(body: memoryview, pos: int, length: int) -> tuple[str, int]:
    end = pos + length
    if not 0 <= length <= MAX_TOPIC_NAME or end > len(body):
        raise ValueError(f"a topic's name of {length} bytes")
    return str(body[pos:end], "ascii"), end


def shortened(message: str) -> str:
    """An error message may quote a name that is as long as strings can be."""
    return message if len(message) <= LONGEST_ERROR_MESSAGE else f"{message[:LONGEST_ERROR_MESSAGE]}..."
