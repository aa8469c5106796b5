"""ListOffsets: what has to be searched for is searched outside the loop; who is told what.
OffsetForLeaderEpoch of a follower. DeleteRecords of internal topics."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from data_plane.log.timestamps import TimeSearch
from data_plane.replication.partition import Partition
from kraft.api import offsets, partition_lookup
from kraft.api.offsets import handle_delete_records, handle_list_offsets, handle_offset_for_leader_epoch
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition
from metadata_quorum.foundation.offset_timestamps import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE
from metadata_quorum.metadata.records import PartitionRecord, TopicRecord
from tests.support.contexts import broker_context, node_context
from tests.support.logs import NOW_MS, lead, open_log
from tests.support.partitions import RaisedFailures, lone_context


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    log = open_log(tmp_path / "t-0")
    for number in range(3):
        lead(log, b"v", timestamp=NOW_MS + number)
    made = Partition(TopicPartition("t", 0), ZERO_UUID, log, lone_context(), 3)
    made.leader_epoch = 0
    return made


def _asked(
    partition: Partition,
    timestamp: int,
    monkeypatch: pytest.MonkeyPatch,
    replica_id: int = -1,
    version: int = 10,
) -> dict[str, Any]:
    monkeypatch.setattr(partition_lookup, "find", lambda *_: partition)
    monkeypatch.setattr(Partition, "check_epoch", lambda *_, **__: None)

    async def ask() -> dict[str, Any]:
        broker = broker_context(node_context(asyncio.get_running_loop()))
        wanted = SimpleNamespace(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
        request: Any = SimpleNamespace(
            topics=[SimpleNamespace(name="t", partitions=[wanted])], replica_id=replica_id, isolation_level=0
        )
        ctx: Any = SimpleNamespace(version=version)
        answer = handle_list_offsets(broker, ctx, request)
        found: Any = answer if isinstance(answer, dict) else await answer  # type: ignore[misc]
        return dict(found["topics"][0]["partitions"][0])

    return asyncio.run(ask())


def test_a_search_by_time_runs_outside_the_loop(partition: Partition, monkeypatch: pytest.MonkeyPatch):
    threads: list[int] = []
    kept = TimeSearch.run

    def noted(self: TimeSearch, may_block: Any) -> Any:
        threads.append(threading.get_ident())
        return kept(self, may_block)

    monkeypatch.setattr(TimeSearch, "run", noted)
    assert _asked(partition, NOW_MS + 1, monkeypatch)["offset"] == 1
    assert _asked(partition, MAX_TIMESTAMP, monkeypatch)["offset"] == 2
    assert _asked(partition, NOW_MS + 9, monkeypatch)["offset"] == -1
    assert len(threads) == 3
    assert threading.get_ident() not in threads
    assert _asked(partition, EARLIEST_TIMESTAMP, monkeypatch)["offset"] == 0
    assert len(threads) == 3


def test_what_the_log_lost_meanwhile_is_asked_for_again(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
):
    """A file that was closed or removed under the search is no failed disk."""

    def closed(self: TimeSearch, may_block: Any) -> Any:
        raise FileNotFoundError(2, "gone")

    monkeypatch.setattr(TimeSearch, "run", closed)
    assert _asked(partition, NOW_MS, monkeypatch)["error_code"] == ErrorCode.OFFSET_NOT_AVAILABLE


@pytest.mark.pure("a leader's state is made up")
@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
@pytest.mark.parametrize("timestamp", [LATEST_TIMESTAMP, NOW_MS + 9])
def test_old_clients_are_told_in_their_own_words_that_the_end_is_not_known_yet(
    timestamp: int, version: int, code: ErrorCode, partition: Partition, monkeypatch: pytest.MonkeyPatch
):
    """Before version 5 they take OFFSET_NOT_AVAILABLE for a failure of the server, and give up."""
    ahead: Any = SimpleNamespace(epoch_start_offset=3)
    partition.leader, partition.high_watermark = ahead, 1
    assert _asked(partition, timestamp, monkeypatch, version=version)["error_code"] == code


@pytest.mark.parametrize("replica_id", [-1, -2, 2])
def test_only_a_leader_says_where_an_epoch_ends(
    replica_id: int, partition: Partition, monkeypatch: pytest.MonkeyPatch
):
    """A follower's log may end differently. -2 is what a request of version 2 means, without the field."""
    monkeypatch.setattr(partition_lookup, "find", lambda *_: partition)
    partition.leader = None

    async def ask() -> int:
        broker = broker_context(node_context(asyncio.get_running_loop()))
        wanted = SimpleNamespace(partition=0, leader_epoch=0, current_leader_epoch=-1)
        request: Any = SimpleNamespace(
            topics=[SimpleNamespace(topic="t", partitions=[wanted])], replica_id=replica_id
        )
        ctx: Any = SimpleNamespace(version=4)
        answer = await handle_offset_for_leader_epoch(broker, ctx, request)
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    assert asyncio.run(ask()) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_unexpected_fault_in_a_search_is_that_partitions_answer(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
):
    faults: list[Exception] = []
    monkeypatch.setattr(RaisedFailures, "fault", lambda self, work, error: faults.append(error))
    monkeypatch.setattr(TimeSearch, "run", lambda *_: [][1])
    answer = _asked(partition, NOW_MS, monkeypatch)
    assert answer["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [type(fault) for fault in faults] == [IndexError]


@pytest.mark.parametrize(("replica_id", "end"), [(-1, 1), (-2, 3), (2, 3)])
def test_only_a_consumer_is_told_of_the_high_watermark(
    replica_id: int, end: int, partition: Partition, monkeypatch: pytest.MonkeyPatch
):
    partition.high_watermark = 1
    assert _asked(partition, LATEST_TIMESTAMP, monkeypatch, replica_id)["offset"] == end


@pytest.mark.pure("its broker has no timer")
def test_records_of_an_internal_topic_are_deleted_nowhere_whoever_leads_it():
    """Another answer would send the client to the leader."""
    delta, topic_id = MetadataDelta(EMPTY_IMAGE), UUID(int=1)
    delta.replay(TopicRecord(name="__consumer_offsets", topic_id=topic_id))
    delta.replay(
        PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=(2,), isr=(2,), leader=2, leader_epoch=0,
            partition_epoch=0,
        )
    )  # fmt: skip

    async def ask() -> list[int]:
        broker = broker_context(node_context(asyncio.get_running_loop(), image=delta.apply()))
        wanted = [SimpleNamespace(partition_index=number, offset=0) for number in (0, 7)]
        request: Any = SimpleNamespace(
            topics=[SimpleNamespace(name="__consumer_offsets", partitions=wanted)], timeout_ms=0
        )
        ctx: Any = SimpleNamespace(version=2)
        answer: Any = await handle_delete_records(broker, ctx, request)
        return [each["error_code"] for each in answer["topics"][0]["partitions"]]

    assert asyncio.run(ask()) == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.row("L3")
@pytest.mark.pure("partitions are stand-ins")
def test_each_partition_is_waited_for_from_its_deletion_on(monkeypatch: pytest.MonkeyPatch):
    """All at once would hold the loop for long, and a loss of leadership in between would be missed."""
    monkeypatch.setattr(offsets, "PARTITIONS_PER_SLICE", 1)
    done: list[tuple[str, int]] = []

    async def ask() -> list[int]:
        def find(broker: object, topic: str, topic_id: UUID, number: int) -> object:
            def add(offset: int, callback: Callable[[ErrorCode], None]) -> None:
                done.append(("wait", number))
                callback(ErrorCode.NONE)

            return SimpleNamespace(
                tp=TopicPartition(topic, number),
                check_epoch=lambda *_, **__: None,
                log=SimpleNamespace(config=SimpleNamespace(delete=True)),
                delete_records=lambda offset: done.append(("delete", number)) or offset,
                low_watermark=lambda: 4,
                low_watermark_purgatory=SimpleNamespace(add=add),
                is_leader=True,
            )

        monkeypatch.setattr(partition_lookup, "find", find)
        wanted = [SimpleNamespace(partition_index=number, offset=5) for number in range(3)]
        request: Any = SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=wanted)], timeout_ms=0)
        node = node_context(asyncio.get_running_loop())
        answer: Any = await handle_delete_records(broker_context(node), SimpleNamespace(version=2), request)
        return [each["error_code"] for each in answer["topics"][0]["partitions"]]

    assert asyncio.run(ask()) == [ErrorCode.NONE] * 3
    assert done == [(what, number) for number in range(3) for what in ("delete", "wait")]


@pytest.mark.row("L3")
@pytest.mark.pure("there is no timer")
def test_another_topic_of_the_name_keeps_its_records(monkeypatch: pytest.MonkeyPatch):
    """A request for more partitions than are answered in a turn of the loop, and the topic is made anew."""
    monkeypatch.setattr(offsets, "PARTITIONS_PER_SLICE", 1)
    images = [MetadataDelta(EMPTY_IMAGE) for _ in range(2)]
    for number, delta in enumerate(images):
        delta.replay(TopicRecord(name="t", topic_id=UUID(int=number)))
        for partition_id in range(3):
            delta.replay(
                PartitionRecord(
                    partition_id=partition_id, topic_id=UUID(int=number), replicas=(1,), isr=(1,), leader=1,
                    leader_epoch=0, partition_epoch=0,
                )
            )  # fmt: skip
    deleted: list[int] = []

    async def ask() -> list[int]:
        node = node_context(asyncio.get_running_loop(), image=images[0].apply())

        def find(broker: object, topic: str, topic_id: UUID, number: int) -> object:
            def delete_records(offset: int) -> int:
                deleted.append(number)
                node.metadata_cache.image = images[1].apply()
                return offset

            return SimpleNamespace(
                tp=TopicPartition(topic, number),
                check_epoch=lambda *_, **__: None,
                log=SimpleNamespace(config=SimpleNamespace(delete=True)),
                delete_records=delete_records,
                low_watermark=lambda: 5,
                is_leader=True,
            )

        monkeypatch.setattr(partition_lookup, "find", find)
        wanted = [SimpleNamespace(partition_index=number, offset=5) for number in range(3)]
        request: Any = SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=wanted)], timeout_ms=0)
        ctx: Any = SimpleNamespace(version=2)
        answer: Any = await handle_delete_records(broker_context(node), ctx, request)
        return [each["error_code"] for each in answer["topics"][0]["partitions"]]

    assert asyncio.run(ask()) == [ErrorCode.NONE] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert deleted == [0]
