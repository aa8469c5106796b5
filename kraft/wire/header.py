"""Request and response headers, by hand: every message starts with one.

Request   int32 length | int16 api_key | int16 version | int32 correlation_id
          | int16 n, n bytes client_id (n = -1: null) | tagged fields, where the API is flexible
Response  int32 length | int32 correlation_id | tagged fields, where the API is flexible
          (but never for ApiVersions: a client must read it before it has our versions)
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from kraft.wire.api_keys import ApiKey
from kraft.wire.schemas import is_flexible, versions_of
from metadata_quorum.foundation.primitives import skip_tags

KEY_AND_VERSION: Final = struct.Struct(
    ">h"  # api_key
    "h"  # version
)
"""What every request begins with."""
REQUEST_FIXED: Final = struct.Struct(
    ">h"  # api_key
    "h"  # version
    "i"  # correlation_id
    "h"  # length of client_id
)
RESPONSE_FIXED: Final = struct.Struct(
    ">i"  # length of all that follows
    "i"  # correlation_id
)
_API_KEYS: Final = frozenset(ApiKey)
NO_TAGS: Final = b"\x00"


class RequestHeader(NamedTuple):
    """The fields of a request's header; `body` is where its message starts."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int


class MalformedHeader(ValueError):
    """Bytes that are no request header."""


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header of a frame (without its length). An unknown version is taken as flexible, as
    Kafka does: only so can a newer client's ApiVersions request be answered. Raises MalformedHeader."""
    try:
        api_key, version, correlation_id, length = REQUEST_FIXED.unpack_from(frame, 0)
    except struct.error:
        raise MalformedHeader(f"a request of {len(frame)} bytes is too short for a header") from None
    pos = REQUEST_FIXED.size
    client_id = None
    if length >= 0:
        if pos + length > len(frame):
            raise MalformedHeader("the client id runs over the end of the request")
        try:
            client_id = str(frame[pos : pos + length], "utf-8")
        except UnicodeDecodeError:
            raise MalformedHeader("the client id is no UTF-8") from None
        pos += length
    if request_is_flexible(api_key, version):
        pos = _after_tags(frame, pos)
    return RequestHeader(api_key, version, correlation_id, client_id, pos)


def request_header(api_key: ApiKey, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request that we send, without the length before it."""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    header = REQUEST_FIXED.pack(api_key, version, correlation_id, length) + encoded
    return header + NO_TAGS if request_is_flexible(api_key, version) else header


def response_prefix(api_key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    """Length and header of a response whose body takes `body_size` bytes."""
    if response_is_flexible(api_key, version):
        return RESPONSE_FIXED.pack(5 + body_size, correlation_id) + NO_TAGS
    return RESPONSE_FIXED.pack(4 + body_size, correlation_id)


def response_body(api_key: int, version: int, frame: memoryview) -> int:
    """Where the body starts in a response frame (without its length)."""
    return _after_tags(frame, 4) if response_is_flexible(api_key, version) else 4


def schema_of(frame: memoryview) -> tuple[ApiKey, int] | None:
    """Which API and version a request is read as: of an unknown version, the nearest. None for no API."""
    if len(frame) < KEY_AND_VERSION.size:
        return None
    api_key, version = KEY_AND_VERSION.unpack_from(frame)
    known = _versions(api_key)
    return (ApiKey(api_key), min(max(version, known[0]), known[-1])) if known else None


@lru_cache(maxsize=1024)  # bounded: clients choose the keys
def request_is_flexible(api_key: int, version: int) -> bool:
    known = _versions(api_key)
    if not known:
        return False
    return is_flexible(api_key, min(max(version, known[0]), known[-1]))


@lru_cache(maxsize=1024)
def response_is_flexible(api_key: int, version: int) -> bool:
    return api_key != ApiKey.API_VERSIONS and request_is_flexible(api_key, version)


def _versions(api_key: int) -> tuple[int, ...]:
    return versions_of(api_key) if api_key in _API_KEYS else ()


def _after_tags(frame: memoryview, pos: int) -> int:
    try:
        return skip_tags(frame, pos)
    except (IndexError, ValueError):
        raise MalformedHeader("the header's tagged fields run over the end") from None
