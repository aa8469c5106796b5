"""UUIDs as Kafka (its class Uuid) draws and writes them: 22 characters of URL-safe base64, no padding."""

from __future__ import annotations

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from uuid import UUID

RESERVED_UUIDS: Final = 100
"""UUIDs below this number are Kafka's own (DirectoryId)."""


def random_uuid(rng: random.Random) -> UUID:
    """One that Kafka's tools accept: none of the reserved ones, no leading dash (it would look like an option
    on a command line)."""
    while True:
        candidate = UUID(int=rng.getrandbits(128), version=4)
        if candidate.int >= RESERVED_UUIDS and not uuid_text(candidate).startswith("-"):
            return candidate


def uuid_text(value: UUID) -> str:
    """A UUID as Kafka writes it in files, options and member ids."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> UUID:
    """Raises ValueError where the text is not Kafka's form of a UUID."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))
