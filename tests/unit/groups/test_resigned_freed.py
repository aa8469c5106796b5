"""A coordinator that resigns keeps nothing of its groups: the collector of cycles may not run for hours. Nor
does it come back."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from data_plane.coordinator.loading import LAST_S
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.virtual_loop import run_virtually
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import commit, run, service, settle

pytestmark = pytest.mark.row("G3")


def test_a_partition_that_is_led_no_more_is_freed():
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            await groups.commit_offsets(commit(1))
        async with service(log, epoch=None) as groups:
            partition = groups.partition_for("g")
            gc.collect()
            gc.disable()
            try:
                groups.become_leader(partition, 2)
                await groups.loaded()
                [shard] = map(weakref.ref, groups.shards)
                groups.resign(partition)
                await settle()
                assert shard() is None
            finally:
                gc.enable()

    run(test)


def test_who_resigns_since_its_log_cannot_be_read_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch):
    """Its log directory fails under the load. The next attempt would find the log in the page cache."""

    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            await groups.commit_offsets(commit(1))
        async with service(log, epoch=None) as groups:

            async def read(partition: int, offset: int, max_bytes: int) -> bytes:
                groups.resign(partition)
                raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

            with monkeypatch.context() as patch:
                patch.setattr(log, "read", read)
                groups.become_leader(groups.partition_for("g"), 2)
                await asyncio.sleep(0.1)
            assert groups.shards == []
            await asyncio.sleep(2 * LAST_S)
            assert groups.shards == []

    run_virtually(test())
