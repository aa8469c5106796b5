"""Headers: which version of them an API has, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.wire import raft_frame
from kraft.wire.api_keys import ApiKey
from kraft.wire.header import (
    MalformedHeader,
    read_request_header,
    request_header,
    response_body,
    response_prefix,
)
from kraft.wire.raft_frame import RaftFrame
from metadata_quorum.foundation.primitives import MAX_TAGS, uvarint


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(ApiKey.METADATA, 8), (ApiKey.METADATA, 9), (ApiKey.API_VERSIONS, 3), (ApiKey.RAFT_FRAME, 0)],
)
@pytest.mark.parametrize("client_id", [None, "", "näme"])
def test_requests(api_key: int, version: int, client_id: str | None) -> None:
    data = request_header(api_key, version, 77, client_id) + b"body"
    header = read_request_header(memoryview(data))
    assert header[:4] == (api_key, version, 77, client_id)
    assert data[header.body :] == b"body"


def test_a_flexible_header_may_carry_tagged_fields() -> None:
    data = request_header(ApiKey.METADATA, 9, 1, "me")[:-1] + b"\x01\x05\x02ab" + b"body"
    assert data[read_request_header(memoryview(data)).body :] == b"body"


def test_tagged_fields_are_counted_here_too() -> None:
    """Before login: without a limit a frame of 60 MB would be walked through for seconds."""
    start = request_header(ApiKey.API_VERSIONS, 3, 1, None)[:-1]
    most = start + uvarint(MAX_TAGS) + b"\x05\x00" * MAX_TAGS
    assert read_request_header(memoryview(most)).body == len(most)
    with pytest.raises(MalformedHeader):
        read_request_header(memoryview(start + uvarint(MAX_TAGS + 1) + b"\x05\x00" * (MAX_TAGS + 1)))


@pytest.mark.parametrize(
    ("api_key", "version", "flexible"),
    [
        (ApiKey.METADATA, 8, False),
        (ApiKey.METADATA, 9, True),
        (ApiKey.API_VERSIONS, 0, False),
        (ApiKey.API_VERSIONS, 3, False),
    ],
)
def test_responses(api_key: int, version: int, flexible: bool) -> None:
    prefix = response_prefix(api_key, version, 5, 10)
    assert int.from_bytes(prefix[:4], "big") == len(prefix) - 4 + 10
    assert len(prefix) == (9 if flexible else 8)
    assert response_body(api_key, version, memoryview(prefix[4:])) == len(prefix) - 4


@given(st.binary(max_size=60))
def test_noise(data: bytes) -> None:
    try:
        header = read_request_header(memoryview(data))
    except MalformedHeader:
        return
    assert header.body <= len(data)


@given(st.text(max_size=20), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.binary(max_size=100))
def test_raft_frames(cluster_id: str, source: int, target: int, frame: bytes) -> None:
    message = RaftFrame(cluster_id, source, target, frame)
    data = raft_frame.encode(message)
    assert raft_frame.decode(memoryview(data)) == message
    for cut in {0, 1, len(data) // 2, len(data) - 1}:
        with pytest.raises(ValueError):
            raft_frame.decode(memoryview(data)[:cut])
    with pytest.raises(ValueError):
        raft_frame.decode(memoryview(data + b"x"))
