"""Produce, from the request's bytes to the response's: what is refused, and what takes long to check."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.produce.v9.response import ProduceResponse as ResponseV9
from kio.serial import entity_reader

from data_plane.log.config import LogConfig
from data_plane.log.validation import INLINE_STEPS
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.replication.partition import Partition
from kraft.api import produce
from kraft.api.long_work import LongWork
from kraft.monitoring.request_metrics import RequestMetrics
from kraft.net.connection import ProtocolError
from kraft.net.connection_state import ConnectionState
from kraft.net.peer import UncountedRequest
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, PartitionRegistration, TopicPartition
from metadata_quorum.security.authorizer import Authorizer
from tests.support.logs import NOW_MS, open_log, read_all
from tests.support.partitions import lone_context

LONG = [b"long", b"longer"] * (INLINE_STEPS // 2 + 1)  # of one size, they would take less
MANY = len(LONG)
TOPIC_ID = UUID(int=77)
LEADER = PartitionRegistration((1,), (1,), leader=1, leader_epoch=0, partition_epoch=0)


class Partitions(list[Partition]):
    def get(self, topic: str, number: int) -> Partition:
        return self[0]

    def get_by_id(self, topic_id: UUID, number: int) -> Partition:
        return self[0]


class NoPartitions(list[Partition]):
    def get(self, topic: str, number: int) -> Partition:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{number}")


class KeptRequest(UncountedRequest):
    """Notes whether its frame is in memory."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def keep(self) -> None:
        self._broker.kept_frames += 1

    def let_go(self) -> None:
        self._broker.kept_frames -= 1

    def charge(self, size: int) -> None:
        self._broker.charged_bytes += size


class Broker:
    """Leads one partition, for one connection."""

    def __init__(self, directory: Path, config: LogConfig | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.executor = ThreadPoolExecutor(2)
        self.go = threading.Event()
        self.jobs = 0
        self.partition = Partition(
            TopicPartition("t", 0), ZERO_UUID, open_log(directory, config), lone_context()
        )
        self.partition.become_leader(LEADER, 0.0)
        node = SimpleNamespace(
            authorizer=None,
            image=SimpleNamespace(topic=lambda _: None),
            loop=SimpleNamespace(
                time=loop.time,
                create_future=loop.create_future,
                create_task=loop.create_task,
                run_in_executor=self.run_in_executor,
            ),
            now_ms=lambda: NOW_MS,
            requests=RequestMetrics(),
            long_work=LongWork(loop),
        )
        self.broker: Any = SimpleNamespace(
            node=node,
            transaction_verifier=None,
            replica_manager=Partitions([self.partition]),
            timer=WheelTimer(loop),
            long_checks=asyncio.Semaphore(2),
        )
        self.kept_frames = self.charged_bytes = 0
        self.connection = SimpleNamespace(
            state=ConnectionState(), listener="", started=lambda: KeptRequest(self)
        )

    def run_in_executor(self, executor: None, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        self.jobs += 1

        def when_told() -> Any:
            assert self.go.wait(60)
            return work(*args)

        return asyncio.get_running_loop().run_in_executor(self.executor, when_told)

    def produce(self, *batches: bytes, acks: int = 1, version: int = 9) -> Any:
        """The response, or a future of it; each batch is for the same partition."""
        ctx: Any = SimpleNamespace(
            version=version, connection=self.connection, client_id="c", cost=None, framed=lambda body: body[0]
        )
        return produce.handle(self.broker, ctx, memoryview(bytearray(request(version, batches, acks))))

    @property
    def values(self) -> list[bytes | None]:
        return [value for _, value in read_all(self.partition.log)]


def request(version: int, batches: Sequence[bytes], acks: int) -> bytes:
    parts = [struct.pack(">hhii", -1, acks, 1000, 1), b"\0\1t", struct.pack(">i", len(batches))]
    if version < 9:
        parts += [struct.pack(">ii", 0, len(batch)) + batch for batch in batches]
        return b"".join(parts)
    head = b"\0" + struct.pack(">hi", acks, 1000) + b"\2" + b"\2t" + uvarint(len(batches) + 1)
    return head + b"".join(b"\0\0\0\0" + uvarint(len(b) + 1) + b + b"\0" for b in batches) + b"\0\0"


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def partitions(response: bytes) -> Any:
    decoded, _ = entity_reader(ResponseV9)(response, 0)
    return decoded.responses[0].partition_responses


def batch(*values: bytes, **fields: Any) -> bytes:
    return encode_batch([Record(-1, NOW_MS, None, value) for value in values], **fields)


def idempotent(sequence: int, *values: bytes) -> bytes:
    return batch(*values, producer_id=7, producer_epoch=0, base_sequence=sequence)


def run(directory: Path, test: Callable[[Broker], Awaitable[None]], config: LogConfig | None = None) -> None:
    async def main() -> None:
        broker = Broker(directory, config)
        try:
            await test(broker)
        finally:
            broker.go.set()
            broker.executor.shutdown()

    asyncio.run(main())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_bad_records_are_named_in_the_answer(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        late = [Record(-1, NOW_MS + far, None, b"v") for far in (0, 2 * 3_600_000, 0, 3 * 3_600_000)]
        refused, appended = partitions(broker.produce(encode_batch(late, compression=1), batch(b"good")))
        assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
        assert refused.error_message == "One or more records have been rejected due to invalid timestamp"
        assert [error.batch_index for error in refused.record_errors] == [1, 3]
        assert all("out of range" in error.batch_index_error_message for error in refused.record_errors)
        assert refused.log_start_offset == broker.partition.log.log_start_offset
        assert (refused.base_offset, appended.error_code, appended.base_offset) == (-1, 0, 0)
        assert broker.values == [b"good"]

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)]
)
def test_zstd_came_with_version_7(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async def test(broker: Broker) -> None:
        response = broker.produce(batch(b"v", compression=4), version=version)
        assert struct.unpack_from(">h", response, 4 + 3 + 4 + 4)[0] == code

    run(tmp_path, test)


@pytest.mark.row("U4")
def test_a_batch_of_a_transaction_that_is_not_named_refuses_the_whole_request(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        of_transaction = batch(b"v", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
        response = broker.produce(batch(b"a"), of_transaction, batch(b"b"))
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert [each.error_code for each in partitions(response)] == [refused] * 3
        assert broker.values == []

    run(tmp_path, test)


@pytest.mark.parametrize(("acks", "version"), [(2, 9), (1, 6)])
def test_of_a_partition_that_is_unknown_nothing_else_is_told(tmp_path: Path, acks: int, version: int) -> None:
    """A producer asks again for what is unknown; other errors end its batch."""

    async def test(broker: Broker) -> None:
        broker.broker.replica_manager = NoPartitions()
        response = broker.produce(batch(b"v", compression=4), acks=acks, version=version)
        at = 4 + 3 + 4 + 4 if version < 9 else 1 + 2 + 1 + 4
        assert struct.unpack_from(">h", response, at)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, test)


@pytest.mark.row("U4")
def test_without_a_right_nothing_is_written_to_an_id_that_is_not_known_yet(tmp_path: Path) -> None:
    """What waits for its turn may find the topic then: it was created meanwhile. One that is being deleted is
    unknown before its replicas are gone."""

    async def test(broker: Broker) -> None:
        broker.broker.node.authorizer = Authorizer().with_acls(())
        ctx: Any = SimpleNamespace(
            version=13,
            connection=broker.connection,
            client_id="c",
            client_host="127.0.0.1",
            principal="User:anna",
            cost=None,
            framed=lambda body: body[0],
        )
        by_name = request(12, [batch(b"v")], 1)
        by_id = by_name.replace(b"\2\2t\2", b"\2" + TOPIC_ID.bytes + b"\2", 1)
        response = produce.handle(broker.broker, ctx, memoryview(bytearray(by_id)))
        assert isinstance(response, bytes)
        assert TOPIC_ID.bytes + b"\2" + struct.pack(">ih", 0, ErrorCode.UNKNOWN_TOPIC_ID) in response
        assert broker.values == []

    run(tmp_path, test)


@pytest.mark.row("P4")
def test_a_transactional_request_has_one_producer(tmp_path: Path) -> None:
    """Its coordinator is asked once: about thousands it was asked one after the other, in one turn."""

    async def test(broker: Broker) -> None:
        broker.broker.transaction_verifier = SimpleNamespace(verifies=True)
        ctx: Any = SimpleNamespace(
            version=9, connection=broker.connection, client_id="c", cost=None, framed=lambda body: body[0]
        )
        batches = [
            batch(b"v", producer_id=7 + i, producer_epoch=0, base_sequence=0, transactional=True)
            for i in range(2)
        ]
        transactional = b"\2x" + request(9, [*batches, batch(b"outside")], 1)[1:]
        response = produce.handle(broker.broker, ctx, memoryview(bytearray(transactional)))
        answers = partitions(response)
        assert [each.error_code for each in answers] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3
        assert broker.values == []

    run(tmp_path, test)


def test_what_takes_long_to_check_is_checked_elsewhere_and_in_its_turn(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        long = broker.produce(idempotent(0, *LONG), acks=-1)
        behind = [broker.produce(idempotent(MANY + i, b"behind")) for i in range(2)]
        await settle()
        assert (broker.jobs, broker.values, broker.kept_frames) == (1, [], 3)
        broker.go.set()
        answers = [partitions(await each)[0] for each in (long, *behind)]
        assert broker.kept_frames == 0
        assert [answer.error_code for answer in answers] == [0, 0, 0]
        assert [answer.base_offset for answer in answers] == [0, MANY, MANY + 1]
        assert broker.values[MANY - 1 :] == [b"longer", b"behind", b"behind"]
        assert partitions(broker.produce(batch(b"at once")))[0].base_offset == MANY + 2
        assert broker.jobs == 1

    run(tmp_path, test)


def test_of_many_small_batches_the_rest_is_checked_elsewhere(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        broker.go.set()
        third = LONG[: INLINE_STEPS // 3]
        answers = partitions(await broker.produce(*[batch(*third)] * 7))
        assert [answer.base_offset for answer in answers] == [i * len(third) for i in range(7)]
        assert 0 < broker.jobs < 7

    run(tmp_path, test)


@pytest.mark.parametrize("codec", range(5))
def test_what_is_refused_after_a_long_check(tmp_path: Path, codec: int) -> None:
    async def test(broker: Broker) -> None:
        broker.go.set()
        keyless = batch(*LONG, compression=codec)
        refused = partitions(await broker.produce(keyless))[0]
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert len(refused.record_errors) == 1000
        text = "Compacted topic cannot accept message without key in topic partition t-0"
        assert refused.record_errors[0].batch_index_error_message == text
        assert refused.error_message.startswith(
            "One or more records have been rejected due to 1000 record errors in total, and only showing the "
            f"first three errors at most: [RecordError(batchIndex=0, message='{text}'), Rec"
        )
        assert broker.values == []

    run(tmp_path, test, LogConfig(cleanup_policy=("compact",)))


def test_leadership_is_lost_during_a_long_check(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        answer = broker.produce(batch(*LONG))
        await settle()
        broker.partition.become_follower(
            PartitionRegistration((1, 2), (2,), leader=2, leader_epoch=1, partition_epoch=1)
        )
        broker.go.set()
        assert partitions(await answer)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.values == []
        assert broker.produce(batch(b"v"))  # the connection goes on

    run(tmp_path, test)


def test_what_was_checked_for_another_configuration_is_to_be_sent_again(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        answer = broker.produce(batch(*LONG))
        await settle()
        broker.partition.configure(LogConfig(cleanup_policy=("compact",)))
        broker.go.set()
        assert partitions(await answer)[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert broker.values == []

    run(tmp_path, test)


def test_nothing_is_reported_of_acks_0_but_the_end(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        broker.go.set()
        assert await broker.produce(batch(*LONG), acks=0) == ()
        with pytest.raises(ProtocolError):
            await broker.produce(batch(*LONG, control=True), batch(*LONG), acks=0)

    run(tmp_path, test)


@pytest.mark.parametrize("version", [3, 9])
def test_no_request_names_more_partitions_than_there_can_be(tmp_path: Path, version: int) -> None:
    async def test(broker: Broker) -> None:
        broker.go.set()
        most = 1001
        answer = broker.produce(*[b""] * 100)
        assert len(partitions(answer)) == 100
        with pytest.raises(ProtocolError, match="more than 1001"):
            await broker.produce(*[b""] * (most + 1), version=version)
        assert broker.kept_frames == 0
        assert len(partitions(await broker.produce(*[b""] * most))) == most

    run(tmp_path, test)


@pytest.mark.pure("its constant is compiled in")
@pytest.mark.row("P1")
def test_very_many_partitions_are_appended_in_pieces_and_before_what_comes_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "PARTITIONS_PER_TURN", 10)

    async def test(broker: Broker) -> None:
        broker.go.set()
        sizes = [0]
        first = broker.produce(*[batch(b"first")] * 24, batch(b""), b"", acks=1)
        behind = broker.produce(batch(b"behind"), acks=1)
        while not behind.done():
            await asyncio.sleep(0)
            sizes.append(len(broker.values))
        assert max(after - before for before, after in pairwise(sizes)) <= 10
        answers = partitions(await first)
        assert [answer.base_offset for answer in answers] == [*range(25), -1]
        assert answers[-1].error_code == ErrorCode.INVALID_RECORD
        assert broker.values == [*[b"first"] * 24, b"", b"behind"]

    run(tmp_path, test)


@pytest.mark.pure("its functions are compiled in")
@pytest.mark.row("P7")
def test_very_many_partitions_are_counted_and_are_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[int] = []

    def note(name: str, partitions: Callable[..., int]) -> None:
        work = getattr(produce, name)

        def noted(*args: Any, **fields: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                on_loop.append(partitions(*args))
            return work(*args, **fields)

        monkeypatch.setattr(produce, name, noted)

    note("read_produce_request", lambda version, body, most: most)
    note("_refusals", lambda node, ctx, request: len(request.partitions))
    note("write_produce_response", lambda version, results: len(results))

    async def test(broker: Broker) -> None:
        broker.go.set()
        assert len(partitions(await broker.produce(*[b""] * 1001))) == 1001
        assert broker.charged_bytes == 1001 * produce.PARTITION_BYTES
        assert on_loop == [produce.PARTITIONS_PER_TURN]

    run(tmp_path, test)


async def answer_of_pieces(broker: Broker, acks: int, meanwhile: Callable[[Partition], None]) -> Any:
    """`meanwhile` is called between a request's first piece and its last. No piece fails by itself: the
    second one is for nothing."""
    broker.go.set()
    answer = broker.produce(batch(b"first"), b"", b"", acks=acks)
    while not broker.values:  # noqa: ASYNC110 - a turn at a time
        await asyncio.sleep(0)
    assert not answer.done()
    meanwhile(broker.partition)
    return partitions(await asyncio.wait_for(answer, 60))[0]


def goes_offline(partition: Partition) -> None:
    partition.offline = True
    partition.stop(ErrorCode.KAFKA_STORAGE_ERROR)


def is_deleted(partition: Partition) -> None:
    partition.removed = True
    partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def is_truncated_and_leads_again(partition: Partition) -> None:
    partition.become_follower(
        PartitionRegistration((1, 2), (2,), leader=2, leader_epoch=1, partition_epoch=1)
    )
    partition.log.truncate_fully_and_start_at(0)
    partition.high_watermark = 0
    partition.become_leader(replace(LEADER, leader_epoch=2, partition_epoch=2), 0.0)
    other = bytearray(batch(b"another one's"))
    partition.append_as_leader(other, acks=-1, now=0.0, now_ms=NOW_MS)
    assert partition.high_watermark == 1


@pytest.mark.pure("its constant is compiled in")
@pytest.mark.row("P1")
@pytest.mark.parametrize(
    ("meanwhile", "code"),
    [
        (goes_offline, ErrorCode.KAFKA_STORAGE_ERROR),
        (is_deleted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_who_is_to_wait_for_a_flush_of_what_is_gone_between_pieces_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Partition], None],
    code: ErrorCode,
) -> None:
    monkeypatch.setattr(produce, "PARTITIONS_PER_TURN", 1)

    async def test(broker: Broker) -> None:
        assert (await answer_of_pieces(broker, 1, meanwhile)).error_code == code

    run(tmp_path, test, LogConfig(flush_messages=1))


@pytest.mark.pure("its constant is compiled in")
@pytest.mark.row("P1", "R2")
def test_what_was_truncated_between_pieces_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "PARTITIONS_PER_TURN", 1)

    async def test(broker: Broker) -> None:
        answer = await answer_of_pieces(broker, -1, is_truncated_and_leads_again)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.values == [b"another one's"]

    run(tmp_path, test)
