"""What a handler answers with, before it is encoded; and the response that has only an error code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode

Response = Mapping[str, Any]
"""Fields by their names in Kafka's schema, those of all versions."""

ResponseStruct = Mapping[str, Any]
"""A struct in it: a topic, a partition, a group."""

OnError = Callable[[Message, ErrorCode, str], Response]
"""The API's own response for a request that failed as a whole: of the request, the error and a message."""


def error_code_only(request: Message, code: ErrorCode, message: str) -> Response:
    """An `OnError` for responses that have no room for a message."""
    return {"error_code": int(code)}
