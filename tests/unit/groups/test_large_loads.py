"""A coordinator loads what is large a piece at a time: batches of thousands of offsets, groups of very many
members, very many groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.group_metadata_manager import GroupMetadataManager
from data_plane.coordinator.groups.messages import CommitOffsets, OffsetToCommit
from data_plane.coordinator.groups.records import GroupRecord, StoredGroup, StoredMember, encode
from data_plane.coordinator.runtime import STARTED_PER_TURN
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.model import TopicPartition
from tests.support.virtual_loop import run_virtually
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import CONFIG, service

MANY = 100
NOBODY = StoredGroup("consumer", 3, None, None, 1, ())


async def turns_of_a_load(
    monkeypatch: pytest.MonkeyPatch,
    log: MemoryLog,
    holder: object = GroupMetadataManager,
    names: tuple[str, ...] = ("decode", "replay"),
) -> list[list[str]]:
    """Which of these are called in each turn of the loop."""
    loop = asyncio.get_running_loop()
    turns: list[list[str]] = [[]]
    for name in names:
        _note(monkeypatch, turns, holder, name)

    def turn() -> None:
        turns.append([])
        loop.call_soon(turn)

    loop.call_soon(turn)
    async with service(log, epoch=2):
        return [each for each in turns if each]


def _note(monkeypatch: pytest.MonkeyPatch, turns: list[list[str]], holder: object, name: str) -> None:
    real: Callable[..., object] = getattr(holder, name)

    def noted(*args: object) -> object:
        turns[-1].append(name)
        return real(*args)

    monkeypatch.setattr(holder, name, noted)


@pytest.mark.row("G3", "P7")
def test_a_batch_of_very_many_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Apache Kafka writes a commit of ten thousand."""

    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            offsets = tuple(OffsetToCommit(TopicPartition("orders", n), 1) for n in range(MANY))
            await groups.commit_offsets(CommitOffsets("g", offsets))
        turns = await turns_of_a_load(monkeypatch, log)
        assert sum(each.count("replay") for each in turns) == MANY
        assert max(each.count("replay") for each in turns) <= CONFIG.shards.load_turn_bytes // 30

    run_virtually(test())


@pytest.mark.row("G3", "P7")
def test_a_group_of_very_many_members(monkeypatch: pytest.MonkeyPatch) -> None:
    members = tuple(StoredMember(f"m{n}", None, "c", "h", 9000, 9000, b"", b"") for n in range(MANY))
    stored = StoredGroup("consumer", 3, "range", "m0", 1, members)
    key, value = encode(GroupRecord("g", stored))

    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            number = groups.partition_for("g")
        log.append(number, 1, bytearray(encode_batch([Record(timestamp=1, key=key, value=value)])))
        assert await turns_of_a_load(monkeypatch, log) == [["decode"], ["replay"]]

    run_virtually(test())


@pytest.mark.row("G3", "P7")
def test_very_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand without members held the loop for a sixth of a second, behind all records."""

    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            number = groups.partition_for("g")
        records = [encode(GroupRecord(f"g{n}", NOBODY)) for n in range(2 * STARTED_PER_TURN)]
        stored = [Record(timestamp=1, key=key, value=value) for key, value in records]
        log.append(number, 1, bytearray(encode_batch(stored)))
        turns = await turns_of_a_load(monkeypatch, log, ClassicGroup, ("loaded",))
        assert sum(map(len, turns)) == len(records)
        assert max(map(len, turns)) <= STARTED_PER_TURN + 1

    run_virtually(test())
