"""One item of a request that is very long: what must be looked at of it is bounded, for an item is processed
at once, and what a controller decides, on every voter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest

from kraft.api import configs, reassignments, topics
from kraft.api.bounds import MOST_OF_A_KIND
from metadata_quorum.decisions.reassignments import alter_reassignments
from metadata_quorum.decisions.topics import name_problem
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import MAX_TOPIC_NAME, PartitionRegistration, ResourceType
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from metadata_quorum.protocol.commands import AlterReassignments, Reassignment
from tests.support.contexts import controller_context, node_context
from tests.support.node_config import config, mapped

pytestmark = pytest.mark.row("P7")

BROKERS: Final = (1, 2, 3)
MANY: Final = 100_000

Handler = Callable[..., Coroutine[Any, Any, Mapping[str, Any]]]


def told(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


class Controller:
    """Has one topic, and keeps what it is to decide."""

    def __init__(self) -> None:
        known = TopicImage("known", UUID(int=1), {0: PartitionRegistration((1,), (1,), 1, 0, 0)})
        brokers: Any = dict.fromkeys(BROKERS)
        self.image = MetadataImage(topics_by_name={"known": known}, brokers=brokers)
        self.decided: list[Any] = []

    async def _decide(self, items: Any, **_: Any) -> list[Any]:
        self.decided += items
        return [
            told(topic="known", name="known", partition=0, error=ErrorCode.INVALID_REQUEST, message="")
            for _ in items
        ]

    create_topics = create_partitions = alter_reassignments = _decide


def asked(handler: Handler, controller: Controller, **fields: Any) -> Mapping[str, Any]:
    async def ask() -> Mapping[str, Any]:
        node = node_context(
            asyncio.get_running_loop(),
            config=config(listener_security_protocol_map=mapped("PLAINTEXT")),
            quotas=None,
        )
        request = told(validate_only=False, timeout_ms=0, allow_replication_factor_change=True, **fields)
        quorum: Any = controller
        return await handler(controller_context(node, quorum_controller=quorum), told(version=3), request)

    return asyncio.run(ask())


def _created(replicas: list[int]) -> dict[str, Any]:
    assigned = told(partition_index=0, broker_ids=replicas)
    return {"name": "new", "num_partitions": -1, "replication_factor": -1, "assignments": [assigned]}


@pytest.mark.parametrize("replicas", [(3, 1), (1, 2, 3), range(MANY), (1,) * MANY])
def test_of_replicas_the_controller_is_told_no_more_than_it_takes_to_refuse_them(replicas: Any) -> None:
    """Of 700,000 that one partition was to have, the event loop wrote a command for a tenth of a second. Of
    one more than there are brokers, one is there twice, or is no broker."""
    named = list(replicas)
    told_of = tuple(named[: len(BROKERS) + 1])
    controller = Controller()
    asked(topics.handle_create_topics, controller, topics=[told(configs=[], **_created(named))])
    assert controller.decided.pop().assignments == ((0, told_of),)
    more = told(name="known", count=2, assignments=[told(broker_ids=named)])
    asked(topics.handle_create_partitions, controller, topics=[more])
    assert controller.decided.pop().assignments == (told_of,)
    moved = told(name="known", partitions=[told(partition_index=0, replicas=named)])
    asked(reassignments.handle_alter, controller, topics=[moved])
    assert controller.decided.pop().replicas == told_of


def test_a_new_topic_has_so_many_configs() -> None:
    """Of a hundred thousand the event loop made dicts and a command for a fifth of a second."""
    few, many = ([told(name=f"k{n}", value="v")] * (MOST_OF_A_KIND + n) for n in (0, 1))
    controller = Controller()
    (answer,) = asked(topics.handle_create_topics, controller, topics=[told(configs=many, **_created([1]))])[
        "topics"
    ]
    assert (answer["error_code"], controller.decided) == (ErrorCode.INVALID_REQUEST, [])
    asked(topics.handle_create_topics, controller, topics=[told(configs=few, **_created([1]))])
    assert controller.decided


def test_so_many_keys_of_a_resource_are_asked_for() -> None:
    resource = told(
        resource_type=ResourceType.TOPIC, resource_name="t", configuration_keys=["k"] * (MOST_OF_A_KIND + 1)
    )

    async def ask() -> Mapping[str, Any]:
        node = node_context(asyncio.get_running_loop())
        request: Any = told(resources=[resource], include_documentation=False, include_synonyms=False)
        return await configs.handle_describe(node, told(version=4), request)  # type: ignore[arg-type]

    (answer,) = asyncio.run(ask())["results"]
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST


def test_a_name_that_is_too_long_is_not_in_the_error_of_each_of_its_partitions() -> None:
    """20,000 partitions of a topic of 32,000 letters (DescribeProducers, 112 KB) took 850 MB."""
    name = "a" * 32_000
    assert len(name_problem(name) or "") < 2 * MAX_TOPIC_NAME
    assert name_problem("b" * (MAX_TOPIC_NAME - 1) + "/") == (
        f"Topic name is invalid: '{'b' * (MAX_TOPIC_NAME - 1)}/' contains one or more characters other than "
        "ASCII alphanumerics, '.', '_' and '-'"
    )
    moved = [Reassignment(topic=name, partition=0, replicas=(1,))] * 2
    command = AlterReassignments(
        reassignments=tuple(moved), allow_replication_factor_change=True, may_be_unclean=True
    )
    reply: Any = alter_reassignments(EMPTY_IMAGE, command).reply
    assert [each.error for each in reply] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert all(0 < len(each.message) < 2 * MAX_TOPIC_NAME for each in reply)
