"""Kafka's text form of a UUID (its class Uuid): 22 characters of URL-safe base64, without padding."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID


def uuid_text(value: UUID) -> str:
    """As Kafka writes it in files, options and ids of members."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> UUID:
    """Raises ValueError where the text is not Kafka's form of a UUID."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))
