"""Questions that are broken off."""

from __future__ import annotations

import asyncio
import gc

import pytest

from kraft.peers.blocking_client import METADATA_VERSION, ask
from kraft.wire.api_keys import ApiKey


def test_ctrl_c_before_a_question_is_asked_leaves_no_coroutine_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio.Runner, "get_loop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask("127.0.0.1", 1, ApiKey.METADATA, (METADATA_VERSION, METADATA_VERSION), {})
    gc.collect()  # a coroutine that was never awaited warns when it goes, and a warning is an error here
