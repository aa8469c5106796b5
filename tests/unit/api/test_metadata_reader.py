"""Who observes the metadata log: as long as he fetches."""

from __future__ import annotations

import asyncio

import pytest

from chaos.sim.disk import SimDisk
from kraft.api import metadata_reader
from kraft.api.metadata_reader import MetadataReader, ObserverState
from metadata_quorum.metadata.metadata_log import MetadataLog
from tests.support.virtual_loop import VirtualLoop, run_virtually


def test_who_fetches_no_more_is_no_observer() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        log = MetadataLog(SimDisk(), "/m")
        reader = MetadataReader(log, loop)
        for replica in (0, 1, 2, -1):
            reader.note(replica, 0)
        loop.stand_still(metadata_reader.OBSERVER_S)
        reader.note(0, 0)
        assert list(reader.observers) == [1, 2, 0]
        noted = loop.time()
        loop.stand_still(1.0)
        assert dict(reader.observers) == {0: ObserverState(0, noted, noted)}
        for replica in range(20_000):
            reader.note(replica, 0)
        assert len(reader.observers) == metadata_reader.MOST_OBSERVERS

    run_virtually(play())


@pytest.mark.row("P7")
def test_of_those_that_wait_some_are_woken_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand that were answered in one turn held the loop for a tenth of a second at every commit."""
    monkeypatch.setattr(metadata_reader, "WOKEN_PER_TURN", 2)

    async def play() -> None:
        reader = MetadataReader(MetadataLog(SimDisk(), "/m"), asyncio.get_running_loop())
        waiting = [reader.more(60.0) for _ in range(8)]
        reader.committed()
        reader.committed()  # as many as there are in that turn
        woken = []
        for _ in range(4):
            woken.append(sum(each.done() for each in waiting))
            waiting[7].cancel()
            await asyncio.sleep(0)
        assert woken == [2, 5, 7, 8], "and the one that was called off"
        late = reader.more(60.0)
        reader.committed()
        assert late.done()

    run_virtually(play())
