"""Groups on real nodes when something is wrong: Kafka's own codes, and nothing of the group lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.clients.rdkafka import QUIET
from tests.support.clients.wire_client import Wire
from tests.support.waiting import PATIENCE_S, wait_until


class Group:
    """A group at its coordinator, wherever that is."""

    def __init__(self, wire: Wire, cluster: LocalCluster, group_id: str) -> None:
        self._wire = wire
        self._cluster = cluster
        self._group_id = group_id

    def coordinator(self) -> int:
        running = [node for node in self._cluster.nodes.values() if node.process() is not None]

        def ask() -> int:
            found = self._wire.ask(
                running[0].client_port, ApiKey.FIND_COORDINATOR, 2, key=self._group_id, key_type=0
            )
            return 0 if found.error_code else int(found.node_id)

        return wait_until(ask, "the coordinator is known")

    def request(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """To be awaited on the wire's loop."""
        port = self._cluster.node(self.coordinator()).client_port
        return self._wire.client(port).request(
            api_key, version, {"group_id": self._group_id, **fields}, timeout_s=PATIENCE_S
        )

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        return self._wire.run(self.request(api_key, version, **fields))

    def joining(self, member_id: str = "") -> Any:
        protocol = {"name": "range", "metadata": member_id.encode()}
        return self.request(
            ApiKey.JOIN_GROUP, 3, member_id=member_id, protocol_type="consumer", protocols=[protocol],
            session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
        )  # fmt: skip

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        return ErrorCode(
            self.ask(ApiKey.HEARTBEAT, 2, member_id=member_id, generation_id=generation).error_code
        )

    def commit(self, *offsets: tuple[str, int, str], partition: int = 0, **member: Any) -> list[ErrorCode]:
        who = {"member_id": "", "generation_id_or_member_epoch": -1} | member
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition, "committed_offset": offset,
                        "committed_leader_epoch": -1, "committed_metadata": metadata,
                    }
                ],
            }
            for topic, offset, metadata in offsets
        ]  # fmt: skip
        answer = self.ask(ApiKey.OFFSET_COMMIT, 7, topics=topics, **who)
        return [ErrorCode(topic.partitions[0].error_code) for topic in answer.topics]

    def offsets(self) -> dict[str, int]:
        answer = self.ask(ApiKey.OFFSET_FETCH, 7, topics=None, require_stable=True)
        return {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}


@pytest.mark.row("G2", "G3")
def test_commits_that_are_refused_and_offsets_of_a_topic_that_is_deleted(
    cluster: LocalCluster, wire: Wire
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    for made in admin.create_topics([NewTopic(name, 1, 3) for name in ("stays", "goes")]).values():
        made.result()
    group = Group(wire, cluster, "refused")
    assert group.commit(("stays", 1, "x" * 4097), ("goes", 2, "x" * 4096), ("nothere", 3, "")) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    stranger = {"member_id": "stranger", "generation_id_or_member_epoch": 3}
    assert Group(wire, cluster, "unheard-of").commit(("stays", 1, ""), **stranger) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert group.commit(("stays", 4, "")) == [ErrorCode.NONE]
    assert group.commit(("stays", 5, ""), partition=1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert group.offsets() == {"stays": 4, "goes": 2}
    admin.delete_topics(["goes"])["goes"].result()
    wait_until(lambda: group.offsets() == {"stays": 4}, "the offset goes with its topic")
    refused = group.commit(("goes", 5, ""), ("stays", 5, ""))
    assert refused == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


@pytest.mark.row("G1", "G2", "G3")
def test_a_coordinator_that_moves_in_the_middle_of_a_join(cluster: LocalCluster, wire: Wire) -> None:
    group = Group(wire, cluster, "moving")
    old = group.coordinator()
    first = wire.run(group.joining())
    assignment = [{"member_id": first.member_id, "assignment": b"all"}]
    group.ask(ApiKey.SYNC_GROUP, 2, member_id=first.member_id, generation_id=1, assignments=assignment)

    def heard(code: ErrorCode) -> bool:
        return group.heartbeat(first.member_id, 1) is code

    with Wire() as other:  # a connection of its own: answers come in the order of the requests
        newcomer = Group(other, cluster, "moving")

        def join() -> asyncio.Task[Any]:
            parked = other.loop.create_task(newcomer.joining())
            other.run(asyncio.sleep(0))
            wait_until(lambda: heard(ErrorCode.REBALANCE_IN_PROGRESS), "the newcomer waits")
            return parked

        parked = join()
        cluster.stop(old)
        assert ErrorCode(other.run(_outcome(parked)).error_code) is ErrorCode.NOT_COORDINATOR
        wait_until(lambda: group.coordinator() != old, "another coordinator is known")
        # The last stable generation is what the next coordinator knows; the newcomer asks there again.
        wait_until(lambda: heard(ErrorCode.NONE), "it has loaded the group")
        parked = join()
        again = wire.run(group.joining(first.member_id))
        joined = other.run(_outcome(parked))
    assert (again.error_code, joined.error_code) == (0, 0)
    assert again.generation_id == joined.generation_id == 2
    assert {member.member_id for member in again.members} == {first.member_id, joined.member_id}
    cluster.start_node(old)


async def _outcome(parked: asyncio.Task[Any]) -> Any:
    return await parked
