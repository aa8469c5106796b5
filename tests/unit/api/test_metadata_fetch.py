"""What a controller says of the quorum to whoever follows the metadata log there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.sim.disk import SimDisk
from fetch.messages import FetchPartition, FetchRequest
from kraft.api import metadata_fetch
from kraft.api.metadata_reader import MetadataReader
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_response
from kraft.wire.fast_fetch import FETCH_VERSION
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID
from metadata_quorum.metadata.metadata_log import MetadataLog
from tests.support.contexts import controller_context, node_context
from tests.support.virtual_loop import run_virtually


async def _answer(raft: Any, offset: int) -> Message:
    loop = asyncio.get_running_loop()
    node = node_context(loop, config=SimpleNamespace(voters=[]), authorizer=None)
    controller = controller_context(
        node,
        quorum_controller=SimpleNamespace(epoch=-1),
        raft=raft,
        metadata_reader=MetadataReader(MetadataLog(SimDisk(), "/m"), loop),
    )
    ctx: Any = SimpleNamespace(version=FETCH_VERSION, framed=lambda buffers: buffers)
    wanted = FetchPartition(METADATA_TOPIC_ID, METADATA_TOPIC, 0, offset, 1 << 20)
    (body,) = metadata_fetch.handle(controller, ctx, FetchRequest([wanted], replica_id=4, max_wait_ms=0))  # type: ignore[misc]
    answer: Message = (
        decode_response(ApiKey.FETCH, FETCH_VERSION, memoryview(body)).responses[0].partitions[0]
    )
    return answer


@pytest.mark.parametrize("offset", [0, 1])
def test_a_voter_that_does_not_count_yet_tells_no_epoch(offset: int) -> None:
    """It may have known of a later one, before its disk was replaced: a broker counted it as a voter that the
    elected epoch had been taken from."""

    async def play() -> None:
        for is_mute, told in ((True, (-1, -1)), (False, (3, 6))):
            answer = await _answer(SimpleNamespace(is_mute=is_mute, leader_id=3, term=6), offset)
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == told
            assert answer.error_code == (ErrorCode.NOT_LEADER_OR_FOLLOWER if offset else ErrorCode.NONE)

    run_virtually(play())
