"""Codes of Kafka's protocol."""

from __future__ import annotations

import pytest

from metadata_quorum.foundation.errors import ErrorCode


def test_a_code_of_a_later_version_is_an_error_and_no_fault() -> None:
    assert ErrorCode(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ValueError):
        ErrorCode("NONE")
