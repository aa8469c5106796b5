"""What a handler answers with, before it is encoded; the response that has only an error code, and the one
that is long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, encode_response
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


class LongResponse:
    """A response that is encoded in another thread. Nobody else refers to it, so that it is freed there, too:
    of very many structs, that takes as long as a stall of the loop."""

    __slots__ = ("fields",)

    def __init__(self, fields: Response) -> None:
        self.fields = fields

    def complete(self, completion: Callable[[Response], Response]) -> None:
        self.fields = completion(self.fields)

    def encode(self, api_key: ApiKey, version: int) -> bytes:
        """Raises `UnencodableMessage`."""
        fields, self.fields = self.fields, {}
        return encode_response(api_key, version, fields)


async def returning(response: Response) -> Response:
    """For who awaits it, though it is there."""
    return response


async def raising(error: Exception) -> Response:
    try:
        raise error
    finally:
        del error  # its traceback has this frame
