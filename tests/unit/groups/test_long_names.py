"""A group may have a name of 32 KB, and each key of its records has it: a thousand of them are 32 MB. What is
done in one turn of the loop is measured by that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from data_plane.coordinator.groups.group_metadata_manager import GroupMetadataManager
from data_plane.coordinator.groups.messages import CommitOffsets, OffsetToCommit
from data_plane.coordinator.groups.offsets import UnfinishedDeletion
from data_plane.coordinator.groups.records import CoordinatorRecord
from data_plane.coordinator.topics import OFFSETS_TOPIC, java_string_hash
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.bytecodes import cost
from tests.unit.groups.api_driver import Broker, image, run
from tests.unit.groups.coordinator_driver import coordinator
from tests.unit.groups.group_driver import GroupDriver
from tests.unit.groups.memory_log import MemoryLog

NAME = "g" * 30_000
MANY = 300
MOST_BYTES = 160 * 1024
"""Of keys, in one turn."""
WEEKS_S = 30 * 24 * 3600.0


def many_offsets(group_id: str) -> CommitOffsets:
    return CommitOffsets(group_id, tuple(OffsetToCommit(TopicPartition("t", n), 1) for n in range(MANY)))


def of_one_group() -> GroupDriver:
    driver = GroupDriver()
    driver.answer("commit", many_offsets(NAME))
    return driver


def of_many_groups() -> GroupDriver:
    driver = GroupDriver()
    for n in range(MANY):
        driver.answer("commit", CommitOffsets(f"{NAME}{n}", (OffsetToCommit(TopicPartition("t", 0), 1),)))
    return driver


def written_since(driver: GroupDriver, before: int) -> int:
    return sum(len(key) for key, _ in driver.log[before:])


@pytest.mark.row("P7")
@pytest.mark.parametrize("filled", [of_one_group, of_many_groups])
def test_they_expire_some_in_each_turn(filled) -> None:
    driver = filled()
    driver.advance(WEEKS_S)
    left, steps = driver.manager.groups_to_expire(), 0
    while left:
        before, steps = len(driver.log), steps + 1
        driver.run("expire", left)
        assert written_since(driver, before) <= MOST_BYTES
    assert steps < MANY
    assert driver.reloaded().listed() == ()


@pytest.mark.row("P7")
@pytest.mark.parametrize("filled", [of_one_group, of_many_groups])
def test_their_topic_is_forgotten_in_some_of_them_in_each_turn(filled) -> None:
    driver = filled()
    deletion = driver.manager.begin_topic_deletion(UnfinishedDeletion(["t"]))
    while not deletion.done:
        before = len(driver.log)
        driver.run("delete_some_offsets", deletion)
        assert written_since(driver, before) <= MOST_BYTES
    assert driver.reloaded().listed() == ()


@pytest.mark.row("P7")
def test_one_is_deleted_a_part_in_each_turn() -> None:
    driver, answer = of_one_group(), None
    while answer is None:
        before = len(driver.log)
        answer = driver.answer("delete", NAME)
        assert written_since(driver, before) <= MOST_BYTES
    assert answer is ErrorCode.NONE
    assert driver.reloaded().listed() == ()


@pytest.mark.row("P7")
def test_of_a_commit_that_no_batch_can_take_no_more_is_encoded_than_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode, encoded = GroupMetadataManager.encode, []

    def counted(manager: GroupMetadataManager, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        encoded.append(record)
        return encode(manager, record)

    monkeypatch.setattr(GroupMetadataManager, "encode", counted)

    async def test() -> None:
        log = MemoryLog()
        async with coordinator(log, 1) as groups:
            with pytest.raises(BrokerError) as refused:
                await groups.commit_offsets(many_offsets(NAME))
            assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            assert len(encoded) == log.max_bytes // len(NAME) + 1

    asyncio.run(test())


def java_hash(text: str) -> int:
    """As Java's documentation has it."""
    value = 0
    for high, low in batched_units(text.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + (high << 8 | low)) % 2**32
    return value - 2**32 if value >= 2**31 else value


def batched_units(encoded: bytes) -> Iterator[tuple[int, int]]:
    return zip(encoded[::2], encoded[1::2], strict=True)


@pytest.mark.row("P7")
@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 32_767])
def test_the_hash_of_a_name_of_any_length_is_javas(length: int) -> None:
    rng = random.Random(length)
    for letters in ("a", "az\0\uffff", "\u20ac\ud800\U0010ffff\xff"):
        name = "".join(rng.choices(letters, k=length))
        assert java_string_hash(name) == java_hash(name)


@pytest.mark.row("P7")
def test_a_long_name_is_hashed_without_a_step_for_each_letter() -> None:
    """Each request of a group has one: of sixty-four in one turn that took a fifth of a second."""
    java_string_hash(NAME)
    assert cost(lambda: java_string_hash(NAME)) < 1000


@pytest.mark.row("P7")
def test_commits_of_such_groups_take_turns() -> None:
    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=11)
        partitions = [{"partition_index": n, "committed_offset": 1} for n in range(11)]
        topics = [{"name": "orders", "partitions": partitions}]
        committing = [
            asyncio.ensure_future(
                broker.ask(ApiKey.OFFSET_COMMIT, 9, {"group_id": f"{NAME}{n}", "topics": topics})
            )
            for n in range(64)
        ]

        def written() -> int:
            return sum(shard.written for shard in broker.service.shards)

        await asyncio.sleep(0)
        assert written() <= 10 * len(partitions)
        await asyncio.gather(*committing)
        assert written() == 64 * len(partitions)

    run(test)
