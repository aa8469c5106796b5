"""Requests that are full of the least: topics without partitions, partitions that are not there, names that
nobody has. However many there are, a handler looks at so many of them in one turn of the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from kraft.api import (
    acls,
    add_partitions,
    brokers,
    configs,
    features,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    metadata_fetch,
    offsets,
    quorum,
    quotas,
    reassignments,
    scram_credentials,
    topics,
    transactions,
)
from kraft.api.authz.authorizer import Authorizer
from kraft.api.bounds import MOST_OF_A_KIND
from kraft.broker.failover_metadata import FailoverMetadata
from kraft.net.connection_state import ConnectionState
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.metadata.image import EMPTY_IMAGE
from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.protocol.replies import DirectoryResult, IsrResult, UserResult
from tests.support.contexts import broker_context, controller_context, node_context

pytestmark = pytest.mark.row("P7")

MANY: Final = 12_000
IN_A_TURN: Final = 2_001
"""The largest slice, and the item that the loop over it has in hand."""


class Watched(list[Any]):
    """Knows how many of its items were taken in the busiest turn of the loop."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.most = self.now = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.now += 1
            self.most = max(self.most, self.now)
            yield item

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if isinstance(at, slice):
            self.now += len(found)
            self.most = max(self.most, self.now)
        return found


class Controller:
    """Decides nothing, and refuses nobody."""

    image = active_image = EMPTY_IMAGE

    def check_registrant(self, cluster_id: str) -> None:
        pass

    async def propose(self, command: Any) -> Any:
        for field in ("acls", "filters"):
            if hasattr(command, field):
                return [SimpleNamespace(error=ErrorCode.NONE, message="", deleted=())] * len(
                    getattr(command, field)
                )
        return [
            UserResult(each.name, ErrorCode.NONE, "") for each in (*command.deletions, *command.upsertions)
        ]

    async def delete_topics(self, keys: Any, **_: Any) -> Any:
        return [
            SimpleNamespace(name=key, topic_id=ZERO_UUID, error=ErrorCode.NONE, message="") for key in keys
        ]

    async def create_partitions(self, wanted: Any, **_: Any) -> Any:
        return [SimpleNamespace(error=ErrorCode.NONE, message="")] * len(wanted)

    async def alter_partition(self, broker_id: int, epoch: int, changes: Any) -> Any:
        return [IsrResult(each.topic_id, each.partition) for each in changes]

    async def assign_replicas_to_dirs(self, broker_id: int, epoch: int, assigned: Any) -> Any:
        return [DirectoryResult(each.topic_id, each.partition, each.directory) for each in assigned]

    async def elect_leaders(self, kind: int, wanted: Any, **_: Any) -> Any:
        return [
            SimpleNamespace(topic=tp.topic, partition=tp.partition, error=ErrorCode.NONE, message="")
            for tp in wanted
        ]

    async def alter_reassignments(self, wanted: Any, **_: Any) -> Any:
        return [
            SimpleNamespace(topic=each.topic, partition=each.partition, error=ErrorCode.NONE, message="")
            for each in wanted
        ]


class Groups:
    """A coordinator that knows no group."""

    async def delete_offsets(self, group_id: str, partitions: Any) -> Any:
        return SimpleNamespace(errors={})

    async def leave(self, request: Any) -> Any:
        members = [(each, ErrorCode.UNKNOWN_MEMBER_ID) for each in request.members]
        return SimpleNamespace(error=ErrorCode.NONE, members=members)

    async def sync(self, request: Any) -> Any:
        return SimpleNamespace(
            error=ErrorCode.UNKNOWN_MEMBER_ID, protocol_type=None, protocol_name=None, assignment=b""
        )


class Transactions:
    """A coordinator elsewhere."""

    async def add_partitions(self, *_: Any) -> None:
        raise BrokerError(ErrorCode.NOT_COORDINATOR)


class NoReplicas:
    logs = SimpleNamespace(dirs=())

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def get(self, topic: str, partition: int) -> Any:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def move(self, tp: Any, path: str) -> None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def told(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def hollow(**fields: Any) -> Watched:
    """Topics without partitions."""
    nothing = {"partitions": [], "partition_indexes": [], "topic_id": ZERO_UUID}
    return Watched(
        told(name=f"t{n}", topic=f"t{n}", topic_name=f"t{n}", **{**nothing, **fields}) for n in range(MANY)
    )


def full(partitions: Watched) -> Any:
    """One topic with these partitions."""
    return told(
        name="t", topic="t", topic_name="t", topic_id=ZERO_UUID, partitions=partitions,
        partition_indexes=partitions,
    )  # fmt: skip


def numbers() -> Watched:
    return Watched(range(MANY))


def structs(**fields: Any) -> Watched:
    values = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "", "replicas": None,
              "snapshot_id": None, "position": 0}  # fmt: skip
    return Watched(
        told(partition_index=n, partition=n, timestamp=-1, current_leader_epoch=-1, leader_epoch=1, offset=0,
             **{**values, **fields})
        for n in range(MANY)
    )  # fmt: skip


def isrs(members: int = 1) -> Watched:
    return structs(partition_epoch=1, new_isr_with_epochs=[], new_isr=[1] * members, leader_recovery_state=0)


class Case(NamedTuple):
    handler: Callable[..., Coroutine[Any, Any, Any]]
    items: Callable[[], Watched]
    request: Callable[[Watched], Any]


def at(handler: Any, field: str, items: Callable[[], Watched], **fields: Any) -> Case:
    return Case(handler, items, lambda watched: told(**{field: watched}, **fields))


def at_topics(handler: Any, field: str = "topics", **fields: Any) -> Case:
    return at(handler, field, hollow, **fields)


def at_partitions(handler: Any, items: Callable[[], Watched], field: str = "topics", **fields: Any) -> Case:
    return Case(handler, items, lambda watched: told(**{field: [full(watched)]}, **fields))


def names(**fields: Any) -> Callable[[], Watched]:
    return lambda: Watched(told(name=f"n{n}", **fields) for n in range(MANY))


LIST: Final[Mapping[str, Any]] = {"replica_id": -1, "isolation_level": 0, "timeout_ms": 0}
COMMIT: Final[Mapping[str, Any]] = {
    "group_id": "g",
    "member_id": "",
    "transactional_id": "x",
    "producer_id": 1,
    "producer_epoch": 0,
}
PRODUCER: Final[Mapping[str, Any]] = {
    "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0, "v3_and_below_transactional_id": "x"
}  # fmt: skip
DESCRIBED: Final[Mapping[str, Any]] = {
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
}
INCARNATION: Final[Mapping[str, Any]] = {"broker_id": 1, "broker_epoch": 1}
SNAPSHOT: Final[Mapping[str, Any]] = {"cluster_id": None, "max_bytes": 1}
REASSIGNED: Final[Mapping[str, Any]] = {"allow_replication_factor_change": True, "timeout_ms": 0}
ACL: Final[Mapping[str, Any]] = {
    "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
FILTER: Final[Mapping[str, Any]] = {
    "resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 3,
    "principal_filter": None, "host_filter": None, "operation": 3, "permission_type": 3,
}  # fmt: skip


def marker(**fields: Any) -> Any:
    return told(producer_id=1, producer_epoch=0, coordinator_epoch=0, transaction_result=True, **fields)


CASES: Final[dict[str, Case]] = {
    "Metadata of strangers": at_topics(metadata.handle_metadata, **DESCRIBED),
    "Metadata of one": at(
        metadata.handle_metadata, "topics", lambda: Watched([told(name="t", topic_id=ZERO_UUID)] * MANY),
        **DESCRIBED,
    ),
    "ListOffsets, topics": at_topics(offsets.handle_list_offsets, **LIST),
    "ListOffsets, partitions": at_partitions(offsets.handle_list_offsets, structs, **LIST),
    "OffsetForLeaderEpoch, topics": at_topics(offsets.handle_offset_for_leader_epoch, **LIST),
    "OffsetForLeaderEpoch, partitions": at_partitions(
        offsets.handle_offset_for_leader_epoch, structs, **LIST
    ),
    "OffsetCommit, topics": at_topics(group_offsets.handle_commit, **COMMIT),
    "OffsetCommit, partitions": at_partitions(group_offsets.handle_commit, structs, **COMMIT),
    "TxnOffsetCommit, topics": at_topics(group_offsets.handle_transactional_commit, **COMMIT),
    "TxnOffsetCommit, partitions": at_partitions(
        group_offsets.handle_transactional_commit, structs, **COMMIT
    ),
    "OffsetDelete, topics": at_topics(group_offsets.handle_delete, **COMMIT),
    "OffsetDelete, partitions": at_partitions(group_offsets.handle_delete, structs, **COMMIT),
    "AddPartitionsToTxn, topics": at_topics(
        add_partitions.handle_add_partitions, "v3_and_below_topics", **PRODUCER
    ),
    "AddPartitionsToTxn, partitions": at_partitions(
        add_partitions.handle_add_partitions, numbers, "v3_and_below_topics", **PRODUCER
    ),
    "WriteTxnMarkers, markers": at(
        transactions.handle_write_markers, "markers", lambda: Watched([marker(topics=[])] * MANY)
    ),
    "WriteTxnMarkers, topics": Case(
        transactions.handle_write_markers, hollow, lambda items: told(markers=[marker(topics=items)])
    ),
    "DescribeProducers, topics": at_topics(transactions.handle_producers),
    "DescribeProducers, partitions": at_partitions(transactions.handle_producers, numbers),
    "DescribeLogDirs, topics": at_topics(log_dirs.handle),
    "DescribeLogDirs, partitions": at_partitions(log_dirs.handle, numbers),
    "AlterReplicaLogDirs": Case(
        log_dirs.handle_alter, hollow, lambda items: told(dirs=[told(path="/", topics=items)])
    ),
    "LeaveGroup": at(
        groups.handle_leave, "members", names(member_id="m", group_instance_id=None), group_id="g"
    ),
    "SyncGroup": at(
        groups.handle_sync, "assignments", names(member_id="m", assignment=b""), group_id="g", member_id="m",
        generation_id=1, group_instance_id=None, protocol_type=None, protocol_name=None,
    ),
    "DescribeUserScramCredentials": at(scram_credentials.handle_describe, "users", names()),
    "AlterUserScramCredentials": at(
        scram_credentials.handle_alter, "deletions", names(mechanism=1), upsertions=[]
    ),
    "DescribeQuorum, topics": at_topics(quorum.handle_describe_quorum),
    "DescribeQuorum, partitions": at_partitions(quorum.handle_describe_quorum, structs),
    "ElectLeaders, topics": at_topics(
        quorum.handle_elect_leaders, "topic_partitions", election_type=0, timeout_ms=0
    ),
    "ElectLeaders, partitions": at_partitions(
        quorum.handle_elect_leaders, numbers, "topic_partitions", election_type=0, timeout_ms=0
    ),
    "AlterPartitionReassignments, topics": at_topics(reassignments.handle_alter, **REASSIGNED),
    "AlterPartitionReassignments, partitions": at_partitions(
        reassignments.handle_alter, structs, **REASSIGNED
    ),
    "ListPartitionReassignments, topics": at_topics(reassignments.handle_list),
    "ListPartitionReassignments, partitions": at_partitions(reassignments.handle_list, numbers),
    "AlterPartition, topics": at_topics(brokers.handle_alter_partition, **INCARNATION),
    "AlterPartition, partitions": at_partitions(brokers.handle_alter_partition, isrs, **INCARNATION),
    "AssignReplicasToDirs, directories": at(
        brokers.handle_assign_replicas, "directories", names(topics=[]), **INCARNATION
    ),
    "AssignReplicasToDirs, topics": Case(
        brokers.handle_assign_replicas, hollow,
        lambda items: told(directories=[told(id=ZERO_UUID, topics=items)], **INCARNATION),
    ),
    "AssignReplicasToDirs, partitions": Case(
        brokers.handle_assign_replicas, structs,
        lambda items: told(directories=[told(id=ZERO_UUID, topics=[full(items)])], **INCARNATION),
    ),
    "FetchSnapshot, topics": at_topics(metadata_fetch.handle_snapshot, **SNAPSHOT),
    "FetchSnapshot, partitions": at_partitions(metadata_fetch.handle_snapshot, structs, **SNAPSHOT),
    "CreatePartitions": at(
        topics.handle_create_partitions, "topics", names(count=2, assignments=None), validate_only=True,
        timeout_ms=0,
    ),
    "IncrementalAlterConfigs": at(
        configs.handle_incremental_alter, "resources",
        lambda: Watched(told(resource_type=77, resource_name=f"{n}", configs=[]) for n in range(MANY)),
    ),
    "CreateAcls": at(acls.handle_create, "creations", names(**ACL)),
    "DeleteAcls": at(acls.handle_delete, "filters", names(**FILTER)),
}  # fmt: skip


async def _asked(handler: Any, request: Any) -> Any:
    loop = asyncio.get_running_loop()
    node = node_context(
        loop,
        config=told(
            delete_topic_enable=True,
            auto_create_topics_enable=False,
            num_partitions=1,
            controller_listener_names=[],
            voters=[],
        ),
        quotas=None,
        authorizer=Authorizer.__new__(Authorizer),
    )
    ctx: Any = told(
        version=3, listener="CLIENTS", connection=told(state=ConnectionState(), gone=False),
        principal="User:a", client_id="c", client_host="h", api_key=0, is_long=True,
    )  # fmt: skip
    if "node" in handler.__annotations__:
        return await handler(node, ctx, request)
    if "controller" in handler.__annotations__:
        raft: Any = told(leader_id=1, term=1, is_mute=False)
        controller = controller_context(node, quorum_controller=Controller(), raft=raft)
        return await handler(controller, ctx, request)
    broker = broker_context(
        node,
        replica_manager=NoReplicas(),
        group_coordinator=Groups(),
        transaction_coordinator=Transactions(),
        failover_metadata=FailoverMetadata(loop, session_timeout_s=9.0),
    )
    return await handler(broker, ctx, request)


@pytest.mark.parametrize("name", CASES)
def test_a_turn_of_the_loop_takes_so_many_items(name: str) -> None:
    case = CASES[name]
    items = case.items()

    async def ask() -> None:
        task = asyncio.ensure_future(_asked(case.handler, case.request(items)))
        while not task.done():
            items.now = 0
            await asyncio.sleep(0)
        await task

    asyncio.run(ask())
    assert items.most, "nobody looked at them"
    assert items.most <= IN_A_TURN


def test_a_resource_has_so_many_configs() -> None:
    many = [told(name=f"{n}", value="1", config_operation=0) for n in range(MOST_OF_A_KIND + 1)]
    request = told(resources=[told(resource_type=2, resource_name="t", configs=many)], validate_only=True)
    (answer,) = asyncio.run(_asked(configs.handle_incremental_alter, request))["responses"]
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("field", ["entity", "ops"])
def test_an_entity_has_so_many_quotas(field: str) -> None:
    parts = {"entity": [], "ops": []} | {field: [told()] * (quotas.MOST_IN_ENTRY + 1)}
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        asyncio.run(_asked(quotas.handle_alter, told(entries=[told(**parts)], validate_only=True)))


def test_so_many_features_are_updated_at_once() -> None:
    updates = [told(feature=f"{n}") for n in range(MOST_OF_A_KIND + 1)]
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        asyncio.run(_asked(features.handle, told(feature_updates=updates)))


def test_an_isr_has_so_many_members() -> None:
    (few, many), members = isrs()[:2], MOST_OF_A_KIND
    few.new_isr, many.new_isr = [1] * members, [1] * (members + 1)
    request = told(topics=[full(Watched([few]))], **INCARNATION)
    assert asyncio.run(_asked(brokers.handle_alter_partition, request))["topics"][0]["partitions"]
    request.topics[0].partitions.append(many)
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        asyncio.run(_asked(brokers.handle_alter_partition, request))


@pytest.mark.parametrize("kind", ["listeners", "features", "log_dirs"])
def test_so_many_of_a_kind_are_registered_of_a_node(kind: str) -> None:
    """Two brokers with four thousand log directories each held every voter up for six seconds."""
    kinds = {"listeners": [], "features": [], "log_dirs": []} | {kind: [None] * (MOST_OF_A_KIND + 1)}
    node = told(cluster_id="c", is_migrating_zk_broker=False, broker_id=1, controller_id=1, **kinds)
    handlers = [brokers.handle_registration, brokers.handle_controller_registration]
    for handler in handlers[: 1 if kind == "log_dirs" else 2]:
        with pytest.raises(BrokerError, match="INVALID_REQUEST"):
            asyncio.run(_asked(handler, node))


def test_so_many_log_directories_fail_at_once() -> None:
    request = told(broker_id=1, broker_epoch=1, offline_log_dirs=[ZERO_UUID] * (MOST_OF_A_KIND + 1))
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        asyncio.run(_asked(brokers.handle_heartbeat, request))


class Watching(dict[Any, Any]):
    """What the cluster has; its values are watched."""

    def __init__(self, items: dict[Any, Any]) -> None:
        super().__init__(items)
        self.watched = Watched(items.items())

    def items(self) -> Any:
        return self.watched


def test_the_quotas_of_very_many_are_described_in_slices() -> None:
    quotas_of = Watching({(("user", f"u{n}"),): {"producer_byte_rate": 1.0} for n in range(MANY)})
    image: Any = told(quotas=quotas_of)

    async def ask() -> None:
        node = node_context(asyncio.get_running_loop(), image=image)
        request: Any = told(components=[], strict=False)
        task = asyncio.ensure_future(quotas.handle_describe(broker_context(node), told(version=1), request))
        while not task.done():
            quotas_of.watched.now = 0
            await asyncio.sleep(0)
        assert len((await task)["entries"]) == MANY

    asyncio.run(ask())
    assert 0 < quotas_of.watched.most <= IN_A_TURN


def test_very_many_access_control_entries_are_looked_for_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: set[int] = set()
    matches = acls.matches
    monkeypatch.setattr(acls, "matches", lambda *each: threads.add(threading.get_ident()) or matches(*each))
    entries = [
        AccessControlEntryRecord(
            id=UUID(int=n + 1), resource_type=2, resource_name=f"t{n}", pattern_type=3, principal="User:a",
            host="*", operation=3, permission_type=3,
        )
        for n in range(MANY)
    ]  # fmt: skip
    turns = 0

    async def ask() -> None:
        nonlocal turns
        image: Any = told(acls={each.id: each for each in entries})
        node = node_context(
            asyncio.get_running_loop(), image=image, authorizer=Authorizer.__new__(Authorizer)
        )
        wanted: Any = told(**{**FILTER, "resource_name_filter": None, "operation": 1, "permission_type": 1})
        task = asyncio.ensure_future(acls.handle_describe(node, told(version=3), wanted))  # type: ignore[arg-type]
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert len((await task)["resources"]) == MANY

    asyncio.run(ask())
    assert threading.get_ident() not in threads
    assert turns >= MANY / acls.DESCRIBED_PER_SLICE
