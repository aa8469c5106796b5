"""A coordinator that resigns keeps nothing of its groups: the collector of cycles may not run for hours."""

from __future__ import annotations

import gc
import weakref

import pytest

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
