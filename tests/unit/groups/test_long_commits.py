"""Offsets of very many partitions are committed and deleted in pieces, and what comes between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from data_plane.coordinator.groups.messages import CommitOffsets, CommitReply, FetchOffsets
from data_plane.coordinator.topics import OFFSETS_TOPIC, partition_for_key
from data_plane.coordinator.transactions.verification_guard import VerificationGuards
from kraft.api import group_offsets
from kraft.api.request_context import RequestContext
from kraft.api.row import Response
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_request, encode_request
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.api_driver import ORDERS_ID, ROWS, WITH_TOPIC_IDS, Broker, context, image, run


def commit_request(version: int, offsets: Mapping[int, int]) -> Message:
    topic = {"topic_id": ORDERS_ID} if version >= WITH_TOPIC_IDS else {"name": "orders"}
    partitions = [{"partition_index": n, "committed_offset": offset} for n, offset in offsets.items()]
    fields = {"group_id": "g", "topics": [topic | {"partitions": partitions}]}
    return decode_request(
        ApiKey.OFFSET_COMMIT, version, encode_request(ApiKey.OFFSET_COMMIT, version, fields)
    )


@pytest.mark.row("G4")
@pytest.mark.parametrize("version", [9, WITH_TOPIC_IDS])
def test_very_many_offsets_are_committed_in_pieces_and_before_what_comes_behind(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(group_offsets, "PIECE", 10)

    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=25)
        sizes = [0]
        store = broker.service.commit_offsets

        async def noted(request: CommitOffsets) -> CommitReply:
            if not sizes[-1]:
                asyncio.get_running_loop().call_soon(sizes.append, 0)  # another turn
            sizes[-1] += len(request.offsets)
            return await store(request)

        monkeypatch.setattr(broker.service, "commit_offsets", noted)
        ctx = context(ROWS[ApiKey.OFFSET_COMMIT], version)
        first, *_ = answers = await asyncio.gather(
            group_offsets.handle_commit(
                broker.context, ctx, commit_request(version, dict.fromkeys(range(26), 1))
            ),
            group_offsets.handle_commit(
                broker.context, ctx, commit_request(version, dict.fromkeys(range(12), 2))
            ),
            group_offsets.handle_commit(broker.context, ctx, commit_request(version, {24: 3})),
        )
        assert len(answers) == 3
        codes = [each["error_code"] for each in first["topics"][0]["partitions"]]
        assert codes == [0] * 25 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [size for size in sizes if size] == [10, 10, 5, 10, 2, 1]
        wanted = FetchOffsets("g", None, require_stable=False)
        kept = (await broker.service.fetch_offsets(wanted)).offsets
        assert [kept[TopicPartition("orders", n)].offset for n in range(25)] == [2] * 12 + [1] * 12 + [3]

    run(test)


@pytest.mark.row("G4")
def test_what_comes_in_the_moment_in_which_a_commit_ends_waits_behind_the_next_one() -> None:
    """It overtook it: an older offset stayed."""

    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=25)
        ctx = context(ROWS[ApiKey.OFFSET_COMMIT], 9)

        def commit(offsets: Mapping[int, int]) -> asyncio.Task[Response]:
            request = commit_request(9, offsets)
            return asyncio.ensure_future(group_offsets.handle_commit(broker.context, ctx, request))

        async with ctx.connection.state.behind_commits():  # as the first of three
            older = commit(dict.fromkeys(range(25), 1))
            await asyncio.sleep(0)
            newer = commit({3: 2})
        await asyncio.gather(older, newer)
        kept = (await broker.service.fetch_offsets(FetchOffsets("g", None, require_stable=False))).offsets
        assert kept[TopicPartition("orders", 3)].offset == 2

    run(test)


@pytest.mark.row("G4")
def test_what_is_committed_behind_a_deletion_on_its_connection_is_not_deleted() -> None:
    """The deletion waits for its turn of the loop; what comes behind it waits for the deletion."""

    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=25)
        topics = [{"name": "orders", "partitions": [{"partition_index": 3}]}]
        encoded = encode_request(ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
        deletion = decode_request(ApiKey.OFFSET_DELETE, 0, encoded)
        ctx = context(ROWS[ApiKey.OFFSET_COMMIT], 9)
        await group_offsets.handle_commit(broker.context, ctx, commit_request(9, {3: 1, 4: 1}))
        await asyncio.gather(
            group_offsets.handle_delete(broker.context, ctx, deletion),
            group_offsets.handle_commit(broker.context, ctx, commit_request(9, {3: 2})),
        )
        kept = (await broker.service.fetch_offsets(FetchOffsets("g", None, require_stable=False))).offsets
        assert {place.partition: each and each.offset for place, each in kept.items()} == {3: 2, 4: 1}

    run(test)


def committed_while(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Broker, RequestContext], object], version: int = 9
) -> tuple[list[int], list[int]]:
    """What 25 partitions are answered, and which are committed, of three requests of a connection: the first
    goes in pieces of 10, and something comes between the first two of them."""
    monkeypatch.setattr(group_offsets, "PIECE", 10)
    codes: list[int] = []
    committed: list[int] = []

    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=25)
        store, ctx = broker.service.commit_offsets, context(ROWS[ApiKey.OFFSET_COMMIT], version)

        async def noted(request: CommitOffsets) -> CommitReply:
            reply = await store(request)
            if not committed:
                meanwhile(broker, ctx)
            committed.extend(each.partition.partition for each in request.offsets)
            return reply

        monkeypatch.setattr(broker.service, "commit_offsets", noted)
        first, *_ = await asyncio.gather(
            *(
                group_offsets.handle_commit(broker.context, ctx, commit_request(version, each))
                for each in (dict.fromkeys(range(25), 1), dict.fromkeys(range(12), 2), {24: 3})
            )
        )
        codes.extend(each["error_code"] for topic in first["topics"] for each in topic["partitions"])

    run(test)
    return codes, committed


@pytest.mark.row("G4")
@pytest.mark.parametrize("version", [9, WITH_TOPIC_IDS])
def test_a_topic_that_is_deleted_meanwhile_gets_no_more_offsets(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    def delete(broker: Broker, _: RequestContext) -> None:
        broker.node.metadata_cache.image = image(OFFSETS_TOPIC)

    codes, committed = committed_while(monkeypatch, delete, version)
    assert codes == [0] * 10 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 15
    assert committed == list(range(10))


@pytest.mark.row("G4")
def test_nor_does_another_one_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def recreate(broker: Broker, _: RequestContext) -> None:
        there = image("orders", OFFSETS_TOPIC, orders=25, orders_id=UUID(int=78))
        broker.node.metadata_cache.image = there

    codes, committed = committed_while(monkeypatch, recreate)
    assert codes == [0] * 10 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 15
    assert committed == [*range(10), *range(10), 10, 11, 24], "what was asked for later is meant for that one"


@pytest.mark.row("G4")
def test_who_has_gone_commits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    _, committed = committed_while(monkeypatch, lambda _, ctx: setattr(ctx.connection, "gone", True))
    assert committed == list(range(10))


# ---- in a transaction --------------------------------------------------------------------------------


class InTransaction:
    """A commit of 25 partitions in pieces of 10, by a producer whose transaction is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group_offsets, "PIECE", 10)
        self.patch = monkeypatch
        self.guards = VerificationGuards()
        producers = SimpleNamespace(has_open_transaction=lambda *_: True)
        self.partition = SimpleNamespace(leader_epoch=3, log=SimpleNamespace(producers=producers))
        self.stored: list[int] = []
        self.behind = 0
        """Partitions of a second request, on the same connection."""

    def answered(self, meanwhile: Callable[[InTransaction, RequestContext], object]) -> list[int]:
        """Error codes; `meanwhile` comes behind the first piece."""
        codes: list[int] = []

        async def test(broker: Broker) -> None:
            broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=25)
            context_of: Any = broker.context
            context_of.transaction_verifier = SimpleNamespace(guards=self.guards, verifies=True)
            context_of.replica_manager = SimpleNamespace(get=lambda *_: self.partition)
            ctx = context(ROWS[ApiKey.TXN_OFFSET_COMMIT], 3)
            store = broker.service.commit_offsets

            async def noted(request: CommitOffsets) -> CommitReply:
                reply = await store(request)
                self.stored.extend(each.partition.partition for each in request.offsets)
                if len(self.stored) == 10:
                    meanwhile(self, ctx)
                return reply

            self.patch.setattr(broker.service, "commit_offsets", noted)
            commit = partial(group_offsets.handle_transactional_commit, broker.context, ctx)
            answer: Any
            answer, _ = await asyncio.gather(commit(self._request(25)), commit(self._request(self.behind)))
            codes.extend(each["error_code"] for topic in answer["topics"] for each in topic["partitions"])

        run(test)
        return codes

    def _request(self, partition_count: int) -> Message:
        partitions = [{"partition_index": n, "committed_offset": 1} for n in range(partition_count)]
        topics = [{"name": "orders", "partitions": partitions}]
        fields = {"transactional_id": "x", "group_id": "g", "producer_id": 7, "producer_epoch": 0}
        encoded = encode_request(ApiKey.TXN_OFFSET_COMMIT, 3, {**fields, "topics": topics})
        return decode_request(ApiKey.TXN_OFFSET_COMMIT, 3, encoded)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(OFFSETS_TOPIC, partition_for_key("g", 50))


@pytest.mark.row("P4")
def test_very_many_offsets_of_a_transaction_are_committed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = InTransaction(monkeypatch)
    assert commit.answered(lambda *_: None) == [0] * 25
    assert commit.stored == list(range(25))


@pytest.mark.row("P4")
def test_a_marker_between_two_pieces_refuses_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came behind it would be of the producer's next transaction."""
    commit = InTransaction(monkeypatch)
    codes = commit.answered(lambda its, _: its.guards.marker_written(its.place, 7))
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 25
    assert commit.stored == list(range(10))


@pytest.mark.row("P4")
def test_leadership_that_came_back_between_two_pieces_refuses_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another leader may have written the marker."""
    commit = InTransaction(monkeypatch)
    codes = commit.answered(lambda its, _: setattr(its.partition, "leader_epoch", 5))
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 25
    assert commit.stored == list(range(10))


@pytest.mark.row("P4")
def test_a_producer_that_has_gone_adds_no_more_to_its_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what waits behind: over another connection its next transaction may have begun."""
    commit = InTransaction(monkeypatch)
    commit.behind = 3
    commit.answered(lambda _, ctx: setattr(ctx.connection, "gone", True))
    assert commit.stored == list(range(10))


# ---- deleted -------------------------------------------------------------------------------------------


@pytest.mark.row("G4")
def test_another_topic_of_the_name_keeps_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "PIECE", 10)

    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=25)
        ctx = context(ROWS[ApiKey.OFFSET_COMMIT], 9)
        await group_offsets.handle_commit(broker.context, ctx, commit_request(9, dict.fromkeys(range(25), 1)))
        delete = broker.service.delete_offsets

        async def noted(group_id: str, partitions: Any) -> CommitReply:
            reply = await delete(group_id, partitions)
            there = image("orders", OFFSETS_TOPIC, orders=25, orders_id=UUID(int=78))
            broker.node.metadata_cache.image = there
            return reply

        monkeypatch.setattr(broker.service, "delete_offsets", noted)
        partitions = [{"partition_index": n} for n in range(25)]
        fields = {"group_id": "g", "topics": [{"name": "orders", "partitions": partitions}]}
        answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, fields)
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [0] * 10 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 15
        kept = (await broker.service.fetch_offsets(FetchOffsets("g", None, require_stable=False))).offsets
        assert [place.partition for place in kept] == list(range(10, 25))

    run(test)


@pytest.mark.row("G4")
def test_very_many_offsets_are_deleted_in_pieces_also_the_last_ones_of_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its last offset the group is gone, and the rest is deleted, too."""
    monkeypatch.setattr(group_offsets, "PIECE", 10)

    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=25)
        ctx = context(ROWS[ApiKey.OFFSET_COMMIT], 9)
        await group_offsets.handle_commit(broker.context, ctx, commit_request(9, dict.fromkeys(range(10), 1)))
        pieces: list[int] = []
        delete = broker.service.delete_offsets

        async def noted(group_id: str, partitions: Any) -> CommitReply:
            pieces.append(len(partitions))
            return await delete(group_id, partitions)

        monkeypatch.setattr(broker.service, "delete_offsets", noted)
        partitions = [{"partition_index": n} for n in range(26)] + [{"partition_index": 3}]
        fields = {"group_id": "g", "topics": [{"name": "orders", "partitions": partitions}]}
        answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, fields)
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [0] * 25 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
        assert pieces == [10, 10, 5]
        again = await broker.ask(ApiKey.OFFSET_DELETE, 0, fields)
        assert again.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(test)


@pytest.mark.row("G4")
def test_a_coordinator_that_is_lost_between_two_pieces_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "PIECE", 10)

    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC, orders=25)

        async def once(group_id: str, partitions: Any) -> CommitReply:
            monkeypatch.setattr(broker.service, "delete_offsets", lost)
            return CommitReply(dict.fromkeys(partitions, ErrorCode.NONE))

        async def lost(group_id: str, partitions: Any) -> CommitReply:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)

        monkeypatch.setattr(broker.service, "delete_offsets", once)
        partitions = [{"partition_index": n} for n in range(25)]
        fields = {"group_id": "g", "topics": [{"name": "orders", "partitions": partitions}]}
        answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, fields)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR

    run(test)
