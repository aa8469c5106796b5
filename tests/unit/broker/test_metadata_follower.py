"""A broker without a controller: how it follows a quorum, ours or Apache Kafka's; what takes long of the
metadata is worked out beside the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kraft.broker.metadata_follower import ACTIVE_S, RETRY_S, STALE_ANSWERS, MetadataFollower
from kraft.net.client import Address
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_request, encode_response
from metadata_quorum.foundation.batch import Record, encode_batch, iter_headers
from metadata_quorum.foundation.errors import ErrorCode, ExitCode, FatalError
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    encode,
)
from metadata_quorum.metadata.snapshot import encode_checkpoint
from tests.support.metadata_machine import MetadataMachine
from tests.support.virtual_loop import run_virtually

PIECE_BYTES: Final = 1000
"""Of a snapshot, in one answer."""


def _large() -> MetadataMachine:
    machine = MetadataMachine()
    machine.claim()
    machine.brokers(1, 2, 3)
    machine.create("t", 1000, 3)
    return machine


# ---- a quorum of Apache Kafka's ------------------------------------------------------------------------


@dataclass
class KraftQuorum:
    """Controllers 1 and 2 as Apache Kafka's answer: the leader alone, who is sent its epoch, and hands out
    what is not committed, too. It is both the channel to them and a connection."""

    batches: list[bytes]
    high_watermark: int = 1 << 30
    leader: int = 2
    epoch: int = 7
    snapshot: bytes = b""
    """Where there is one, the log begins behind it, at `snapshot_end`."""
    snapshot_end: int = 100
    snapshot_size: int | None = None
    """What is said of it; None: its size."""
    broken: Callable[[], dict[str, Any]] | None = None
    """What is answered instead, once."""
    stand_by: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What a voter answers instead, as long as it is here."""
    reached: set[int] | None = None
    """Voters; None: all."""
    silent: set[int] = field(default_factory=set)  # paused: their connections stay
    discovers: bool = False
    asked: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Voter, offset, leader epoch, last fetched epoch."""
    snapshot_epochs: list[int] = field(default_factory=list)
    active: int = -1
    voters: Sequence[int] = (1, 2)
    resigned: bool = False
    """The leader, which names itself until another one is elected."""

    def connected(self, voter: int) -> bool:
        return self.reached is None or voter in self.reached

    def learn_address(self, voter: int, address: Address) -> None:
        assert (voter, address) == (self.leader, Address("h", 9))

    def learn_active(self, voter: int) -> None:
        self.active = voter

    def forget_active(self, voter: int) -> None:
        if self.active == voter:
            self.active = -1

    async def connect_apart(self, voter: int, client_id: str, timeout_s: float) -> Any:
        async def exchange(api_key: ApiKey, version: int, body: tuple[bytes], timeout_s: float) -> memoryview:
            request = decode_request(api_key, version, memoryview(body[0]))
            await asyncio.sleep(0.001)
            if voter in self.silent:
                await asyncio.sleep(timeout_s)
                raise TimeoutError
            return memoryview(encode_response(api_key, version, self._answer(voter, request)))

        async def request(api_key: ApiKey, version: int, fields: dict[str, Any], *, timeout_s: float) -> Any:
            wanted = fields["topics"][0]["partitions"][0]
            self.snapshot_epochs.append(wanted["current_leader_epoch"])
            if wanted["current_leader_epoch"] != self.epoch:
                return SimpleNamespace(error_code=ErrorCode.FENCED_LEADER_EPOCH, topics=[])
            piece = SimpleNamespace(
                error_code=0,
                size=len(self.snapshot) if self.snapshot_size is None else self.snapshot_size,
                unaligned_records=self.snapshot[wanted["position"] :][:PIECE_BYTES],
                current_leader=SimpleNamespace(leader_id=self.leader, leader_epoch=self.epoch),
            )
            return SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[piece])])

        return SimpleNamespace(connected=True, exchange=exchange, request=request, close=lambda: None)

    def _answer(self, voter: int, request: Any) -> dict[str, Any]:
        wanted = request.topics[0].partitions[0]
        self.asked.append(
            (voter, wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch)
        )
        if self.broken is not None:
            broken, self.broken = self.broken, None
            return broken()
        if voter in self.stand_by:
            return self.stand_by[voter]
        code = ErrorCode.NONE
        if wanted.last_fetched_epoch < 0 or wanted.current_leader_epoch < 0:
            code = ErrorCode.INVALID_REQUEST
        elif wanted.current_leader_epoch < self.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif voter != self.leader or self.resigned:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition: dict[str, Any] = {
            "partition_index": 0, "error_code": int(code), "high_watermark": self.high_watermark,
            "current_leader": {"leader_id": self.leader, "leader_epoch": self.epoch},
            "aborted_transactions": None, "records": b"",
        }  # fmt: skip
        if code is ErrorCode.NONE and self.snapshot and wanted.fetch_offset < self.snapshot_end:
            partition["snapshot_id"] = {"end_offset": self.snapshot_end, "epoch": 5}
        elif code is ErrorCode.NONE:
            left = b"".join(self.batches)
            partition["records"] = b"".join(
                left[position : position + header.size]
                for position, header in iter_headers(left)
                if header.last_offset >= wanted.fetch_offset
            )
        topic = {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID, "partitions": [partition]}
        return {"responses": [topic], "node_endpoints": [{"node_id": self.leader, "host": "h", "port": 9}]}


def batch(offset: int, *records: MetadataRecord, epoch: int = 3) -> bytes:
    stored = [Record(timestamp=1, value=encode(each)) for each in records]
    return encode_batch(stored, base_offset=offset, leader_epoch=epoch)


def feature(level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=level)


def following(
    quorum: Any, test: Callable[[MetadataFollower], Any], loop: Callable[..., None] = run_virtually
) -> None:
    async def run() -> None:
        follower = MetadataFollower(asyncio.get_running_loop(), 4, quorum)
        follower.start()
        await test(follower)
        await follower.close()

    loop(run())


async def reached(follower: MetadataFollower, holds: Callable[[MetadataImage], bool]) -> None:
    changed = asyncio.Event()
    follower.subscribe(lambda delta, image: changed.set())
    async with asyncio.timeout(10):
        while not holds(follower.image):
            await changed.wait()
            changed.clear()


async def level(follower: MetadataFollower, wanted: int) -> None:
    await reached(follower, lambda image: image.features.get("metadata.version") == wanted)


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


def diverging(end_offset: int = 5, epoch: int = 7) -> dict[str, Any]:
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "records": b"",
                 "aborted_transactions": None, "diverging_epoch": {"epoch": 2, "end_offset": end_offset},
                 "current_leader": {"leader_id": 2, "leader_epoch": epoch}}  # fmt: skip
    return {"responses": [{"topic_id": METADATA_TOPIC_ID, "partitions": [partition]}]}


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


def redirecting(epoch: int) -> dict[str, Any]:
    """By who knows of no leader in its term."""
    answer = diverging(epoch=epoch)
    partition = answer["responses"][0]["partitions"][0]
    del partition["diverging_epoch"]
    partition["current_leader"]["leader_id"] = -1
    partition["error_code"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return answer


def ending_before_us(epoch: int = 7) -> dict[str, Any]:
    answer = diverging(epoch=epoch)
    partition = answer["responses"][0]["partitions"][0]
    del partition["diverging_epoch"]
    partition |= {"error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE), "high_watermark": 1}
    return answer


@pytest.mark.parametrize("answer", [diverging(end_offset=1), ending_before_us()])
def test_it_ends_with_its_node_where_a_controller_has_lost_what_was_committed(answer: dict[str, Any]) -> None:
    """The controllers were restored from a backup, while the broker ran on. Once they had decided as much
    anew as they had lost, it took their history in behind the other one."""
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))])
    ended: list[BaseException] = []

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: ended.append(context["exception"])
        )
        quorum.batches = [batch(0, feature(20))]
        quorum.broken = lambda: answer
        while not ended:  # noqa: ASYNC110 - of the follower's own
            await asyncio.sleep(0.001)
        quorum.batches += [batch(1, feature(25)), batch(2, feature(22))]
        await asyncio.sleep(10)
        assert follower.image.features["metadata.version"] == 21

    following(quorum, test)
    (error,) = ended
    assert isinstance(error, FatalError)
    assert error.exit_code is ExitCode.WRONG_CLUSTER
    assert "controller 2 has lost metadata from offset 1 on" in error.reason


@pytest.mark.parametrize("answer", [diverging(end_offset=1, epoch=6), ending_before_us(epoch=6)])
def test_a_leader_that_does_not_know_yet_that_it_was_replaced_has_lost_nothing(
    answer: dict[str, Any],
) -> None:
    """Without its voters it stays active for two seconds. It ended the node of whoever had followed the next
    one, and came back to it."""
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3))

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        quorum.reached, quorum.stand_by[2] = {2}, answer
        asked = len(quorum.asked)
        await asyncio.sleep(STALE_ANSWERS // 2 * RETRY_S)
        assert len(quorum.asked) > asked + STALE_ANSWERS // 3
        quorum.stand_by.clear()
        quorum.batches += [batch(2, feature(22))]
        await level(follower, 22)

    following(quorum, test)


def test_a_term_that_nobody_was_elected_in_proves_nothing() -> None:
    """A candidate alone knows of it; the others are behind it, and right."""
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3))

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        quorum.reached, quorum.stand_by[1] = {1}, redirecting(9)
        await asyncio.sleep(1)
        quorum.reached, quorum.stand_by = {2, 3}, {2: ending_before_us(epoch=7), 3: redirecting(7)}
        await asyncio.sleep(1)
        quorum.stand_by.clear()
        quorum.leader, quorum.epoch = 3, 10
        quorum.batches += [batch(2, feature(22))]
        await level(follower, 22)

    following(quorum, test)


def test_who_was_behind_is_asked_again_where_the_others_are_silent() -> None:
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3))

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        quorum.reached, quorum.stand_by[3] = {3}, redirecting(6)
        await asyncio.sleep(1)
        quorum.stand_by.clear()
        quorum.reached, quorum.silent = {2, 3}, {2}
        quorum.leader, quorum.epoch, quorum.active = 3, 8, 3
        quorum.batches += [batch(2, feature(22))]
        await level(follower, 22)

    following(quorum, test)


@pytest.mark.parametrize("answer", [diverging(1, epoch=6), diverging(5, epoch=6), ending_before_us(epoch=6)])
@pytest.mark.parametrize(
    ("discovers", "at_most"), [(False, 4), pytest.param(True, STALE_ANSWERS + 3, id="discovers")]
)
def test_controllers_restored_from_before_an_election_are_of_an_older_epoch(
    answer: dict[str, Any], discovers: bool, at_most: int
) -> None:
    """All of them: once a majority has said so it is certain, and before they decide much. Where they are
    learned of one by one nobody knows how many that is."""
    quorum = KraftQuorum(
        [batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3), discovers=discovers
    )
    ended: list[BaseException] = []

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: ended.append(context["exception"])
        )
        quorum.asked.clear()
        quorum.stand_by = {1: redirecting(6), 2: answer, 3: redirecting(6)}
        await asyncio.sleep(30)

    following(quorum, test)
    (error,) = ended
    assert isinstance(error, FatalError)
    assert error.exit_code is ExitCode.WRONG_CLUSTER
    assert "lost metadata from offset 1 on" in error.reason
    assert sum(voter == 2 for voter, *_ in quorum.asked) <= at_most


def test_a_record_that_cannot_be_read_is_named(caplog: pytest.LogCaptureFixture) -> None:
    unknown = encode_batch([Record(timestamp=1, value=b"\1\x63\0\0")], base_offset=1, leader_epoch=3)
    quorum = KraftQuorum([batch(0, feature(20)), unknown])

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 20)
        await asyncio.sleep(1)

    following(quorum, test)
    (warning,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert "record at offset 1: unknown metadata record type 99" in warning
