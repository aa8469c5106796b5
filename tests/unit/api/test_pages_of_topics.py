"""DescribeTopicPartitions, page by page: of all topics those that may be seen, and a cursor."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar, Final
from uuid import UUID

import pytest

from kraft.api.authz.authorization import AuthorizedRequest, RequestPrincipal
from kraft.api.authz.topic_checks import describe_topic_partitions
from kraft.api.metadata import TOPICS_PER_SLICE, handle_describe_topic_partitions
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import PartitionRegistration
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from metadata_quorum.security.authorizer import Authorizer
from tests.support.contexts import broker_context, node_context

pytestmark = pytest.mark.row("U4")

ANNA: Final = "User:anna"
HER_TOPICS: Final = AccessControlEntryRecord(
    id=UUID(int=1),
    resource_type=AclResourceType.TOPIC,
    resource_name="hers-",
    pattern_type=PatternType.PREFIXED,
    principal=ANNA,
    host="*",
    operation=AclOperation.DESCRIBE,
    permission_type=AclPermissionType.ALLOW,
)
MANY: Final = 5_000


class Counting(Authorizer):
    """How often it was asked since somebody looked."""

    asked: ClassVar = [0]

    def allows(self, *about: Any) -> bool:
        self.asked[0] += 1
        return super().allows(*about)


def image_of(*names: str, partitions: int = 2) -> MetadataImage:
    one = PartitionRegistration((1,), (1,), 1, 0, 0)
    return MetadataImage(
        topics_by_name={
            name: TopicImage(name, UUID(int=number), dict.fromkeys(range(partitions), one))
            for number, name in enumerate(names, start=1)
        }
    )


def described(
    image: MetadataImage, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[Any, int]:
    """The response to Anna, and how often at most her rights were looked up in one turn of the loop."""
    asked = [0]

    async def ask() -> Any:
        authorizer = Counting(index=Authorizer().with_acls([HER_TOPICS]).index)
        config = SimpleNamespace(max_request_partition_size_limit=2000)
        node = node_context(asyncio.get_running_loop(), image=image, config=config, authorizer=authorizer)
        ctx: Any = SimpleNamespace(principal=ANNA, client_host="10.0.0.1", listener="CLIENTS")
        request: Any = SimpleNamespace(
            topics=[SimpleNamespace(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor and SimpleNamespace(topic_name=cursor[0], partition_index=cursor[1]),
        )
        authorizer.asked[0] = 0
        authorized: Any = describe_topic_partitions(RequestPrincipal.of(authorizer, ctx), node, ctx, request)
        asked.append(authorizer.asked[0])
        if not isinstance(authorized, AuthorizedRequest):
            return authorized
        handling = asyncio.ensure_future(
            handle_describe_topic_partitions(broker_context(node), ctx, authorized.request)
        )
        while not handling.done():
            authorizer.asked[0] = 0
            await asyncio.sleep(0)
            asked.append(authorizer.asked[0])
        assert authorized.complete is not None
        return authorized.complete(await handling)

    return asyncio.run(ask()), max(asked)


def shown(response: Any) -> dict[str, list[int]]:
    return {
        topic["name"]: [each["partition_index"] for each in topic["partitions"]]
        for topic in response["topics"]
    }


def test_of_all_topics_those_that_may_be_seen_are_described() -> None:
    response, _ = described(image_of("hers-1", "hidden", "hers-2"))
    assert shown(response) == {"hers-1": [0, 1], "hers-2": [0, 1]}
    assert response["next_cursor"] is None
    response, _ = described(image_of("a-hidden", "b-hidden"))
    assert response == {"topics": [], "next_cursor": None}


def test_no_cursor_tells_of_a_topic_that_is_hidden() -> None:
    image = image_of("hers-1", "hers-1-and-more", "hers-2", "herself")
    response, _ = described(image, limit=2)
    assert response["next_cursor"] == {"topic_name": "hers-1-and-more", "partition_index": 0}
    image = image_of("hers-1", "hidden")
    response, _ = described(image, limit=2)
    assert shown(response) == {"hers-1": [0, 1]}
    assert response["next_cursor"] is None


def test_a_hidden_topic_that_is_named_is_refused() -> None:
    response, _ = described(image_of("hers-1", "hidden"), "hidden", "hers-1")
    assert {topic["name"]: topic["error_code"] for topic in response["topics"]} == {
        "hers-1": 0,
        "hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_the_cursor_counts_for_its_own_topic() -> None:
    """Its topic was deleted between two pages: the next one was described without its first partitions."""
    response, _ = described(image_of("hers-1", "hers-2"), cursor=("hers-1", 1))
    assert shown(response) == {"hers-1": [1], "hers-2": [0, 1]}
    response, _ = described(image_of("hers-2"), "hers-1", "hers-2", cursor=("hers-1", 1))
    assert shown(response) == {"hers-1": [], "hers-2": [0, 1]}


@pytest.mark.row("P7")
@pytest.mark.parametrize(
    ("prefix", "limit", "page"), [("hers-", 2000, 2000), ("hidden-", 2000, 0), ("hidden-", -1, 0)]
)
def test_the_rights_to_very_many_are_looked_up_in_slices(prefix: str, limit: int, page: int) -> None:
    """To twenty thousand that took 67 ms, for each page."""
    image = image_of(*(f"{prefix}{number}" for number in range(MANY)), partitions=1)
    response, asked = described(image, limit=limit)
    assert len(response["topics"]) == page
    assert 0 < asked <= TOPICS_PER_SLICE + 1
