"""What no node may answer to a simulated client, whatever befalls it: that the client has done wrong.

What they send is well formed, of versions that every broker has, and allowed. They go round most errors, as
Kafka's clients do, so that one without a cause would not show in any history. Their time may be wrong: a node
whose clock is set back by an hour refuses what lies more than an hour ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode

ACCUSATIONS: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_FETCH_SIZE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    }
)
OF_REPEATED: Final = {(ApiKey.CREATE_PARTITIONS, ErrorCode.INVALID_PARTITIONS)}
"""A broker that has lost its connection to a controller sends the request again: by then the topic may have
as many partitions as it asks for, which is an error."""


def accusations_in(message: Message) -> Iterator[ErrorCode]:
    """Among the error codes of an answer, that of each partition too."""
    for name, value in vars(message).items():
        if name.endswith("error_code"):
            if value in ACCUSATIONS:
                yield ErrorCode(value)
        elif isinstance(value, Message):
            yield from accusations_in(value)
        elif isinstance(value, list | tuple):
            for each in value:
                if isinstance(each, Message):
                    yield from accusations_in(each)
