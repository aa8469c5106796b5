"""What a request names ten thousand times, or in names as long as may be, costs no more than it should."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest

from kraft.api import (
    add_partitions,
    configs,
    consumer_groups,
    group_admin,
    group_offsets,
    groups,
    quorum,
    topics,
    transactions,
)
from kraft.broker.failover_metadata import FailoverMetadata
from kraft.net.connection_state import ConnectionState
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import GROUP_VERSION
from metadata_quorum.foundation.model import METADATA_TOPIC, ResourceType
from metadata_quorum.foundation.topic_configs import GROUP_CONFIGS
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import broker_context, controller_context, node_context
from tests.support.node_config import config, mapped

pytestmark = pytest.mark.row("P7")

NONE: Final = ErrorCode.NONE
PLAIN: Final = config(listener_security_protocol_map=mapped("PLAINTEXT"))
LONGEST: Final = 32_767
MANY: Final = 60


def told(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def test_the_quorum_is_described_once() -> None:
    """To name it takes five bytes, to describe it kilobytes."""
    raft = told(is_leader=False, state=lambda: told(leader_id=1, term=1))

    async def described() -> Any:
        controller = controller_context(node_context(asyncio.get_running_loop()), raft=raft)
        partitions = [told(partition_index=n) for n in (0, 7, 0, 7, 0)]
        named = [told(topic_name=METADATA_TOPIC, partitions=partitions)] * 2
        return await quorum.handle_describe_quorum(controller, told(version=0), told(topics=named))

    answer = asyncio.run(described())
    numbers = [[each["partition_index"] for each in topic["partitions"]] for topic in answer["topics"]]
    assert numbers == [[0, 7, 7], [7, 7]]


class Hashes:
    """Notes how many long names were looked at in the busiest turn of the loop."""

    def __init__(self) -> None:
        self.most = self.now = self.all = 0

    def partition_for(self, name: str, *_: Any) -> int:
        self.now += 1
        self.all += 1
        self.most = max(self.most, self.now)
        return 0

    async def described(self, name: Any) -> Any:
        self.partition_for(name)
        raise BrokerError(ErrorCode.NOT_COORDINATOR)

    def size_of(self, name: str) -> int:
        return 0

    describe_group = describe_consumer_group = delete_group = fetch_offsets = describe = described

    async def count(self) -> None:
        while True:
            self.now = 0
            await asyncio.sleep(0)


Handler = Callable[..., Coroutine[Any, Any, Any]]

NAMES: Final = [f"{n:04}".rjust(LONGEST, "g") for n in range(MANY)]
OPERATIONS: Final = {"include_authorized_operations": False}


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (groups.handle_find_coordinator, told(key_type=0, coordinator_keys=NAMES)),
        (group_admin.handle_describe, told(groups=NAMES, **OPERATIONS)),
        (group_admin.handle_delete, told(groups_names=NAMES)),
        (consumer_groups.handle_describe, told(group_ids=NAMES, **OPERATIONS)),
        (transactions.handle_describe, told(transactional_ids=NAMES)),
        (
            group_offsets.handle_fetch,
            told(
                groups=[told(group_id=each, topics=None, member_id=None, member_epoch=-1) for each in NAMES],
                require_stable=False,
            ),
        ),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_of_names_as_long_as_may_be_few_are_hashed_in_one_turn(
    monkeypatch: pytest.MonkeyPatch, handler: Handler, request_: Any
) -> None:
    hashes = Hashes()
    monkeypatch.setattr(groups, "partition_for_key", hashes.partition_for)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        topic = TopicImage("__consumer_offsets", UUID(int=1), {})
        image = MetadataImage(topics_by_name={topic.name: topic}, features={GROUP_VERSION: 1})
        broker = broker_context(
            node_context(loop, image=image, config=PLAIN),
            failover_metadata=FailoverMetadata(loop, session_timeout_s=9.0),
            group_coordinator=hashes,
            transaction_coordinator=hashes,
        )
        turns = loop.create_task(hashes.count())
        ctx = told(version=8, listener="IN", connection=told(state=ConnectionState()))
        await handler(broker, ctx, request_)
        turns.cancel()

    asyncio.run(run())
    assert hashes.all == MANY
    assert hashes.most <= 2


def test_no_client_adds_an_internal_topic_to_its_transaction() -> None:
    """Kafka refuses it whatever rights it has."""

    async def added() -> Any:
        broker = broker_context(node_context(asyncio.get_running_loop()))
        named = [told(name=name, partitions=[0]) for name in ("t", "__transaction_state")]
        request = told(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=named,
        )
        ctx = told(version=3, api_key=24, connection=told(gone=False, state=ConnectionState()))
        return await add_partitions.handle_add_partitions(broker, ctx, request)

    answer = asyncio.run(added())
    codes = [
        each["partition_error_code"]
        for topic in answer["results_by_topic_v3_and_below"]
        for each in topic["results_by_partition"]
    ]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_a_resource_is_described_once_with_whatever_keys() -> None:
    async def described() -> Any:
        resources = [
            told(resource_type=ResourceType.GROUP, resource_name=name, configuration_keys=keys)
            for name, keys in (("a", None), ("a", [key]), ("b", [key]), ("a", [key, "c"]))
        ]
        node = node_context(asyncio.get_running_loop(), config=PLAIN)
        request = told(resources=resources, include_documentation=False, include_synonyms=False)
        return await configs.handle_describe(node, told(), request)

    key = "consumer.session.timeout.ms"
    found = asyncio.run(described())["results"]
    assert [(each["resource_name"], len(each["configs"])) for each in found] == [
        ("a", len(GROUP_CONFIGS)),
        ("b", 1),
    ]


def test_what_topics_that_are_created_together_have_in_common_is_there_once() -> None:
    """A request of two megabytes names a hundred thousand; described one by one they took a gigabyte."""

    class Created:
        image = MetadataImage()

        async def create_topics(self, wanted: Any, **_: Any) -> Any:
            return [
                told(name=each.name, topic_id=UUID(int=1), partitions=1, replication_factor=1, error=NONE)
                for each in wanted
            ]

    async def created() -> Any:
        node = node_context(asyncio.get_running_loop(), config=PLAIN)
        controller = controller_context(node, quorum_controller=Created())
        own = [told(name="retention.ms", value="7"), told(name="segment.bytes", value=None)]
        named = [("a", []), ("b", []), ("c", own)]
        wanted = [
            told(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=its)
            for name, its in named
        ]
        request = told(topics=wanted, validate_only=True, timeout_ms=0)
        return await topics.handle_create_topics(controller, told(version=7, api_key=19), request)

    a, b, c = (
        {each["name"]: each for each in topic["configs"]} for topic in asyncio.run(created())["topics"]
    )
    assert all(a[name] is b[name] for name in a)
    assert [name for name in a if c[name] is not a[name]] == ["retention.ms"]
    assert (a["retention.ms"]["value"], c["retention.ms"]["value"]) == ("604800000", "7")
    assert c["retention.ms"]["config_source"] == int(configs.ConfigSource.TOPIC)
