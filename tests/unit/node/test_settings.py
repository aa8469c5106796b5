"""From keys to what the rooms ask for."""

from __future__ import annotations

import pytest

from kraft.node import settings
from metadata_quorum.raft.config import RaftConfig
from tests.support.node_config import config, mapped


@pytest.mark.row("Q1")
def test_no_frame_of_raft_is_longer_than_voters_take() -> None:
    """One that is closes the connection, and so does every copy of it."""
    usual = RaftConfig()
    listeners = {"listener.security.protocol.map": mapped("PLAINTEXT")}
    small = settings.raft_config(config(**listeners, **{"socket.request.max.bytes": "100000"}))
    assert small.max_command_bytes < 100_000
    assert small.append_bytes < 100_000
    assert small.snapshot_chunk_bytes < 100_000
    as_it_is = settings.raft_config(config(**listeners))
    assert as_it_is.max_command_bytes == usual.max_command_bytes
    assert as_it_is.append_bytes == usual.append_bytes
    assert as_it_is.snapshot_chunk_bytes == usual.snapshot_chunk_bytes
