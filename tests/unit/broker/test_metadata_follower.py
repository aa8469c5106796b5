"""A broker without a controller: how it follows a quorum, ours or Apache Kafka's; what takes long of the
metadata is worked out beside the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import chain
from threading import get_ident
from typing import Any

import pytest

from kraft.broker.metadata_follower import ACTIVE_S, TURN_S, MetadataFollower
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from metadata_quorum.metadata.snapshot import encode_checkpoint
from tests.support.kraft_quorum import (
    KraftQuorum,
    batch,
    diverging,
    feature,
    following,
    level,
    reached,
)
from tests.support.metadata_machine import MetadataMachine


def _large() -> MetadataMachine:
    machine = MetadataMachine()
    machine.claim()
    machine.brokers(1, 2, 3)
    machine.create("t", 1000, 3)
    return machine


def test_it_finds_the_leader_and_shows_it_the_epochs() -> None:
    quorum = KraftQuorum([batch(0, feature(20))])

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 20)
        quorum.leader, quorum.epoch = 1, 8
        quorum.batches += [batch(1, feature(21), epoch=8), batch(2, feature(22), epoch=8)]
        await level(follower, 22)

    following(quorum, test)
    assert quorum.asked[0] == (1, 0, 0, 0)
    assert (2, 0, 7, 0) in quorum.asked
    assert (1, 1, 8, 3) in quorum.asked
    assert quorum.active == 1


def test_a_leader_is_active_once_it_has_written_a_record() -> None:
    leader_change = encode_batch([Record(timestamp=1, value=b"")], leader_epoch=7, control=True)
    quorum = KraftQuorum([leader_change])

    async def test(follower: MetadataFollower) -> None:
        await reached(follower, lambda image: image.epoch == 7)
        await asyncio.sleep(ACTIVE_S / 2)
        assert quorum.active == -1
        quorum.batches.append(batch(1, feature(20), epoch=7))
        await level(follower, 20)
        quorum.leader, quorum.epoch = 1, 8
        quorum.batches.append(
            encode_batch([Record(timestamp=1, value=b"")], base_offset=2, leader_epoch=8, control=True)
        )
        await reached(follower, lambda image: image.epoch == 8)
        assert quorum.active == -1
        await asyncio.sleep(ACTIVE_S * 2)  # it writes nothing while it is idle
        assert quorum.active == 1

    following(quorum, test)


def test_a_leader_that_has_resigned_is_asked_for_nothing_more() -> None:
    quorum = KraftQuorum([batch(0, feature(20), epoch=7)])

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 20)
        assert quorum.active == 2
        quorum.resigned = True
        await asyncio.sleep(ACTIVE_S * 2)
        assert quorum.active == -1
        assert {voter for voter, *_ in quorum.asked[-4:]} == {1, 2}
        quorum.leader, quorum.epoch, quorum.resigned = 1, 8, False
        quorum.batches.append(batch(1, feature(21), epoch=8))
        await level(follower, 21)
        assert quorum.active == 1

    following(quorum, test)


def test_what_is_not_committed_is_not_shown() -> None:
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))], high_watermark=1)

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 20)
        before = len(quorum.asked)
        await asyncio.sleep(10)
        assert follower.image.features["metadata.version"] == 20
        assert len(quorum.asked) - before < 40  # nor is it asked for without a pause
        quorum.high_watermark = 2
        await level(follower, 21)

    following(quorum, test)


def test_a_metadata_transaction_counts_when_it_ends() -> None:
    begin, abort, end = BeginTransactionRecord(name="t"), AbortTransactionRecord(), EndTransactionRecord()
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, begin, feature(21)), batch(3, feature(22))])

    async def test(follower: MetadataFollower) -> None:
        async def at(offset: int) -> int:
            await reached(follower, lambda image: image.offset >= offset)
            return follower.image.features["metadata.version"]

        assert await at(3) == 20
        quorum.batches.append(batch(4, abort, begin, feature(23)))
        assert await at(6) == 20
        quorum.batches.append(batch(7, end, feature(24)))
        assert await at(8) == 24

    following(quorum, test)


def _following_turn_by_turn(
    quorum: KraftQuorum, batch_s: float, test: Callable[[MetadataFollower, list[list[int]]], Any]
) -> None:
    """Where each batch takes so long. `test` is given the levels that were heard of, turn by turn."""
    now_s = [0.0]
    turns: list[list[int]] = [[]]

    def heard(_: MetadataDelta, image: MetadataImage) -> None:
        now_s[0] += batch_s
        turns[-1].append(image.features["metadata.version"])

    def next_turn() -> None:
        turns.append([])
        asyncio.get_running_loop().call_soon(next_turn)

    async def run(follower: MetadataFollower) -> None:
        follower.subscribe(heard)
        next_turn()
        await test(follower, turns)

    following(quorum, run, asyncio.run, lambda: now_s[0])


@pytest.mark.parametrize(
    ("batch_s", "in_turns"), [(TURN_S, [1] * 10), (TURN_S / 4, [4, 4, 2]), (TURN_S / 1000, [10])]
)
def test_an_answer_of_many_batches_leaves_turns_to_others(batch_s: float, in_turns: list[int]) -> None:
    """Beside fifty thousand access control entries, a hundred new ones took the loop for half a second."""
    levels = list(range(1, 11))
    quorum = KraftQuorum([batch(i, feature(each)) for i, each in enumerate(levels)])

    async def test(follower: MetadataFollower, turns: list[list[int]]) -> None:
        await level(follower, levels[-1])
        heard = list(filter(None, turns))
        assert list(chain(*heard)) == levels
        assert [len(each) for each in heard] == in_turns

    _following_turn_by_turn(quorum, batch_s, test)


def test_who_stops_amid_an_answer_has_the_image_of_whole_batches() -> None:
    begin, end = BeginTransactionRecord(name="t"), EndTransactionRecord()
    quorum = KraftQuorum([batch(0, feature(1)), batch(1, begin, feature(2)), batch(3, end)])

    async def test(follower: MetadataFollower, turns: list[list[int]]) -> None:
        while len(list(chain(*turns))) < 2:  # noqa: ASYNC110 - turns are counted
            await asyncio.sleep(0)
        await follower.close()
        assert list(chain(*turns)) == [1, 1]
        assert (follower.image.offset, follower.image.features["metadata.version"]) == (2, 1)

    _following_turn_by_turn(quorum, TURN_S, test)


def test_a_snapshot_is_fetched_in_the_epoch_of_the_leader() -> None:
    machine = _large()
    quorum = KraftQuorum([batch(100, feature(20), epoch=5)], snapshot=encode_checkpoint(machine.image))

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 20)
        assert follower.image.topics_by_name.keys() == machine.image.topics_by_name.keys()

    following(quorum, test, asyncio.run)  # a snapshot is read in a thread
    assert set(quorum.snapshot_epochs) == {7}


def test_large_changes_are_worked_out_beside_the_loop() -> None:
    machine = _large()
    machine.fence(3)
    committed = machine.log.end_offset
    quorum = KraftQuorum([bytes(machine.log.read(0, 1 << 30))], high_watermark=committed)
    beside: list[str] = []
    heard_on, prepared_on = set[int](), set[int]()

    async def test(follower: MetadataFollower) -> None:
        loop: Any = asyncio.get_running_loop()
        run_in_executor = loop.run_in_executor

        def counted(executor: None, work: partial[Any]) -> Any:
            beside.append(work.func.__name__)
            return run_in_executor(executor, work)

        loop.run_in_executor = counted
        follower.subscribe(lambda _, image: heard_on.add(get_ident()), lambda _: prepared_on.add(get_ident()))
        await reached(follower, lambda image: image == machine.image)
        quorum.snapshot, quorum.snapshot_end = encode_checkpoint(machine.image), committed + 10
        await reached(follower, lambda image: image.offset == committed + 9)
        assert follower.image.topics_by_name == machine.image.topics_by_name

    following(quorum, test, asyncio.run)
    assert beside == ["load_batch", "load_batch", "_loaded"]  # the topic, the fence, the snapshot
    assert (heard_on, len(prepared_on), prepared_on & heard_on) == ({get_ident()}, 1, set())


@pytest.mark.parametrize(("snapshot", "size"), [(b"no snapshot", 11), (b"x" * 10, 11)])
def test_a_snapshot_that_is_none_is_asked_for_again(
    snapshot: bytes, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = KraftQuorum([batch(0, feature(20))], snapshot=snapshot, snapshot_size=size)

    async def test(follower: MetadataFollower) -> None:
        while not caplog.records:  # noqa: ASYNC110 - of the follower's own
            await asyncio.sleep(0.001)
        assert follower.image.offset < 0
        quorum.snapshot = b""
        await level(follower, 20)

    following(quorum, test, asyncio.run)
    assert [each.levelname for each in caplog.records] == ["WARNING"]


NO_TOPIC: dict[str, Any] = {"responses": []}
NO_SUCH_ERROR: dict[str, Any] = {"error_code": 31_000, "responses": []}


@pytest.mark.parametrize("broken", [NO_TOPIC, NO_SUCH_ERROR, diverging()])
def test_an_answer_that_is_none_is_said_once_and_asked_for_again(
    broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    quorum = KraftQuorum([batch(0, feature(20))], broken=lambda: broken)

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 20)

    following(quorum, test)
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]


def test_a_record_that_cannot_be_read_is_named(caplog: pytest.LogCaptureFixture) -> None:
    unknown = encode_batch([Record(timestamp=1, value=b"\1\x63\0\0")], base_offset=1, leader_epoch=3)
    quorum = KraftQuorum([batch(0, feature(20)), unknown])

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 20)
        await asyncio.sleep(1)

    following(quorum, test)
    (warning,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert "record at offset 1: unknown metadata record type 99" in warning
