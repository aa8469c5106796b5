"""What a broker remembers of the names in produce requests."""

from __future__ import annotations

import sys

from kraft.wire.fast_produce import ProducedPartition, write_produce_response
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID


def is_remembered(error_code: ErrorCode) -> bool:
    """Whether the name in the answer is still held after it."""
    name = f"{error_code.name} of a topic " + "x" * 32_000
    before = sys.getrefcount(name)
    write_produce_response(9, [ProducedPartition(name, ZERO_UUID, 0, error_code)])
    return sys.getrefcount(name) > before


def test_the_name_of_what_was_refused_is_not_remembered() -> None:
    """Four thousand of them, of 32 KB each, were kept for as long as the node ran."""
    assert is_remembered(ErrorCode.NONE)
    assert not is_remembered(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
