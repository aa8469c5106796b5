"""CreateTopics, DeleteTopics, CreatePartitions: decided by the active controller, topic by topic.

The partitions that a client creates and deletes are counted before they are proposed: for its quota
(controller_mutation_quota.py), and because a command that makes millions of them would take all memory of
every voter, and again whenever one starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from kraft.api.authz.checks import authorize_topics
from kraft.api.authz.topic_checks import create_topics, delete_topics
from kraft.api.bounds import check_few, enough_replicas
from kraft.api.config_validation import check_topic_values, weight_of
from kraft.api.configs import topic_configs
from kraft.api.context import ControllerContext, NodeContext
from kraft.api.controller_mutation_quota import ControllerMutationQuota
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import in_batches, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.decisions.topics import already_exists, check_total
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, detached
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.protocol.replies import TopicResult
from metadata_quorum.protocol.requests import CreatablePartitions, CreatableTopic
from metadata_quorum.security.acls import AclOperation

CREATED_PER_SLICE: Final = 20
"""Topics answered in one turn of the loop: the response has all settings of each topic."""
NAMED_PER_SLICE: Final = 1_000
PARTITIONS_AS_ONE: Final = 4
"""So many partitions of a topic that is created, or gets more, take the time of a topic; and so many of its
configs."""

Requested = TypeVar("Requested")


async def _within_bounds(
    controller: ControllerContext,
    wishes: Iterable[Requested],
    partitions: Callable[[Requested], int],
    weight: Callable[[Requested], int] = lambda _: 1,
) -> tuple[list[Requested], list[tuple[Requested, BrokerError]]]:
    """Those that one request may ask for together, and those that it may not. `partitions`: how many a wish
    makes, at most; raises `BrokerError` where it cannot be granted."""
    allowed: list[Requested] = []
    refused: list[tuple[Requested, BrokerError]] = []
    total = 0
    async for wish in in_slices(controller.node.long_work, wishes, NAMED_PER_SLICE, weight):
        try:
            made = max(partitions(wish), 0)
            check_total(total + made)
        except BrokerError as error:
            refused.append((wish, detached(error)))
        else:
            total += made
            allowed.append(wish)
    return allowed, refused


async def _within_quota(
    controller: ControllerContext,
    mutation_quota: ControllerMutationQuota,
    wishes: Iterable[Requested],
    partitions: Callable[[Requested], int],
) -> tuple[list[Requested], list[tuple[Requested, BrokerError]]]:
    """The wishes within the client's quota, and those that must wait. What changes nothing costs nothing."""
    allowed: list[Requested] = []
    refused: list[tuple[Requested, BrokerError]] = []
    async for wish in in_slices(controller.node.long_work, wishes, NAMED_PER_SLICE):
        count = partitions(wish)
        try:
            if count > 0:
                mutation_quota.count(count)
            allowed.append(wish)
        except BrokerError as error:
            refused.append((wish, detached(error)))
    return allowed, refused


# ---- CreateTopics ------------------------------------------------------------------------------------


async def handle_create_topics(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    twice, once = await _named_twice(controller, request.topics)
    bounded, too_many = await _within_bounds(
        controller,
        once,
        lambda topic: _to_create(controller, topic),
        lambda topic: weight_of(topic.configs),
    )
    mutation_quota = ControllerMutationQuota(controller.node, ctx)
    wanted, refused = await _within_quota(
        controller, mutation_quota, bounded, lambda topic: _partitions_to_make(controller, topic)
    )
    refused += too_many
    answers = [_failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in twice]
    async for topic, error in in_slices(controller.node.long_work, refused, NAMED_PER_SLICE):
        answers.append(_failed(topic.name, error.code, error.message))
    results = await in_batches(
        controller.node.long_work,
        wanted,
        lambda topics: controller.quorum_controller.create_topics(
            [_creatable(controller.quorum_controller.image, topic) for topic in topics],
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
        ),
        lambda topic: max(
            (_partitions_named(controller, topic) + len(topic.configs)) // PARTITIONS_AS_ONE, 1
        ),
    )
    if results:  # hundreds of commands of other clients may have been applied in the same turn
        await controller.node.long_work.first(1 / CREATED_PER_SLICE)
    configs = _DescribedConfigs(controller.node)
    async for topic, result in in_slices(
        controller.node.long_work, zip(wanted, results, strict=True), CREATED_PER_SLICE
    ):
        if result.error is not ErrorCode.NONE:
            answers.append(_failed(result.name, result.error, result.message))
        else:
            answers.append(_created(topic, result, configs))
    return {"topics": answers, "throttle_time_ms": mutation_quota.throttle_time_ms}


def _to_create(controller: ControllerContext, topic: Message) -> int:
    """How many partitions the topic gets, if it is made. Raises `BrokerError`."""
    check_few(topic.configs)
    try:
        check_topic_values({each.name: each.value for each in topic.configs})
    except BrokerError:
        if controller.quorum_controller.image.topic(topic.name) is not None:
            raise already_exists(topic.name) from None
        raise
    return _partitions_named(controller, topic)


def _partitions_to_make(controller: ControllerContext, topic: Message) -> int:
    if controller.quorum_controller.image.topic(topic.name) is not None:
        return 0
    return _partitions_named(controller, topic)


def _partitions_named(controller: ControllerContext, topic: Message) -> int:
    count: int = len(topic.assignments) or topic.num_partitions
    return controller.node.config.num_partitions if count == -1 else count


def _creatable(image: MetadataImage, topic: Message) -> CreatableTopic:
    return CreatableTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, enough_replicas(image, each.broker_ids)) for each in topic.assignments),
        {each.name: each.value for each in topic.configs},
    )


class _DescribedConfigs:
    """The configs of the topics of one request; what is the same for all topics is kept once."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._usual = self._entries({})

    def of(self, topic: Message) -> list[dict[str, Any]]:
        own = {each.name: each.value for each in topic.configs if each.value is not None}
        if not own:
            return self._usual
        usual = {each["name"]: each for each in self._usual}
        entries = self._entries(own)
        return [each if each["name"] in own else usual.get(each["name"], each) for each in entries]

    def _entries(self, own: Mapping[str, str]) -> list[dict[str, Any]]:
        return [
            {
                "name": entry.key.name,
                "value": entry.value,
                "read_only": False,
                "config_source": int(entry.source),
                "is_sensitive": entry.key.sensitive,
            }
            for entry in topic_configs(self._node, own)
        ]


def _created(topic: Message, result: TopicResult, configs: _DescribedConfigs) -> dict[str, Any]:
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": result.partitions,
        "replication_factor": result.replication_factor,
        "configs": configs.of(topic),
    }


def _failed(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": int(code),
        "error_message": message or None,
        "configs": [],
    }


async def _named_twice(
    controller: ControllerContext, topics: Sequence[Message]
) -> tuple[dict[str, None], list[Message]]:
    """The names that are there more than once, and the topics of the others."""
    first: dict[str, Message] = {}
    twice: dict[str, None] = {}
    async for topic in in_slices(controller.node.long_work, topics, NAMED_PER_SLICE):
        if first.setdefault(topic.name, topic) is not topic:
            twice[topic.name] = None
    return twice, [topic for name, topic in first.items() if name not in twice]


def create_topics_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {
        "topics": [_failed(name, code, message) for name in dict.fromkeys(t.name for t in request.topics)]
    }


# ---- DeleteTopics ------------------------------------------------------------------------------------

_FIRST_TO_KNOW_DISABLED: Final = 3


async def handle_delete_topics(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    if not controller.node.config.delete_topic_enable:
        known = ctx.version >= _FIRST_TO_KNOW_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
        raise BrokerError(code, "Topic deletion is disabled.")
    image = controller.quorum_controller.image
    named, responses = await controller.node.computing(lambda: named_for_deletion(image, request))
    names: dict[str | UUID, str | None] = {}  # afterwards they are gone
    async for key in in_slices(controller.node.long_work, named, NAMED_PER_SLICE):
        names[key] = _name_of(controller, key)
    mutation_quota = ControllerMutationQuota(controller.node, ctx)
    topics, refused = await _within_quota(
        controller, mutation_quota, named, lambda key: _partitions_of(controller, key)
    )
    results = await in_batches(
        controller.node.long_work,
        topics,
        lambda keys: controller.quorum_controller.delete_topics(keys, timeout_ms=request.timeout_ms),
    )
    answers = list(zip(topics, results, strict=True))
    answers += [
        (key, TopicResult(names[key] or "", error=error.code, message=error.message))
        for key, error in refused
    ]
    async for key, result in in_slices(controller.node.long_work, answers, NAMED_PER_SLICE):
        responses.append(
            {
                "name": names[key] or result.name or None,
                "topic_id": key if isinstance(key, UUID) else result.topic_id,
                "error_code": int(result.error),
                "error_message": result.message or None,
            }
        )
    return {"throttle_time_ms": mutation_quota.throttle_time_ms, "responses": responses}


def named_for_deletion(
    image: MetadataImage, request: Message
) -> tuple[list[str | UUID], list[dict[str, Any]]]:
    """By name or id from version 6 on, by name before; and what is refused because it is named twice, by
    both or by neither."""
    refused: list[dict[str, Any]] = []

    def refuse(name: str | None, topic_id: UUID, message: str) -> None:
        failed = {"error_code": int(ErrorCode.INVALID_REQUEST), "error_message": message}
        refused.append({"name": name, "topic_id": topic_id, **failed})

    keys: list[str | UUID] = list(request.topic_names)
    for topic in request.topics:
        by_id = topic.topic_id != ZERO_UUID
        if by_id and topic.name is not None:
            refuse(topic.name, topic.topic_id, "You may not specify both topic name and topic id.")
        elif not by_id and topic.name is None:
            refuse(None, ZERO_UUID, "Neither topic name nor id were specified.")
        else:
            keys.append(topic.topic_id if by_id else topic.name)
    times = Counter(keys)
    wanted: list[str | UUID] = []
    for key, count in times.items():
        by_id = isinstance(key, UUID)
        if count > 1:
            kind = "id" if by_id else "name"
            refuse(None if by_id else str(key), key if isinstance(key, UUID) else ZERO_UUID,
                   f"Duplicate topic {kind}.")  # fmt: skip
        else:
            wanted.append(key)
    twice: set[str | UUID] = set()
    for name in wanted:
        topic = image.topic(name) if isinstance(name, str) else None
        if topic is not None and topic.id in times:
            twice |= {name, topic.id}
            refuse(topic.name, topic.id, "The provided topic name maps to an ID that was already supplied.")
    return [key for key in wanted if key not in twice], refused


def _partitions_of(controller: ControllerContext, key: str | UUID) -> int:
    topic = controller.quorum_controller.image.topic(key)
    return 0 if topic is None else len(topic.partitions)


def _name_of(controller: ControllerContext, key: str | UUID) -> str | None:
    if isinstance(key, str):
        return key
    topic = controller.quorum_controller.image.topic(key)
    return None if topic is None else topic.name


def delete_topics_error(request: Message, code: ErrorCode, message: str) -> Response:
    named = [{"name": name} for name in request.topic_names]
    named += [{"name": topic.name, "topic_id": topic.topic_id} for topic in request.topics]
    failed = {"error_code": int(code), "error_message": message or None}
    return {"responses": [{**each, **failed} for each in named]}


# ---- CreatePartitions --------------------------------------------------------------------------------


async def handle_create_partitions(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    twice, once = await _named_twice(controller, request.topics)
    bounded, hollow = await _within_bounds(controller, once, lambda topic: _to_add(controller, topic))
    mutation_quota = ControllerMutationQuota(controller.node, ctx)
    wanted, refused = await _within_quota(
        controller,
        mutation_quota,
        bounded,
        lambda topic: topic.count - _partitions_of(controller, topic.name),
    )
    results = await in_batches(
        controller.node.long_work,
        wanted,
        lambda topics: controller.quorum_controller.create_partitions(
            [_creatable_partitions(controller.quorum_controller.image, topic) for topic in topics],
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
        ),
        lambda topic: max(topic.count // PARTITIONS_AS_ONE, 1),  # those that it has are looked at, too
    )
    refused += hollow
    answers = [_partitions_failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in twice]
    done = [(topic.name, r.error, r.message) for topic, r in zip(wanted, results, strict=True)]
    done += [(topic.name, error.code, error.message) for topic, error in refused]
    async for each in in_slices(controller.node.long_work, done, NAMED_PER_SLICE):
        answers.append(_partitions_failed(*each))
    return {"results": answers, "throttle_time_ms": mutation_quota.throttle_time_ms}


def _to_add(controller: ControllerContext, topic: Message) -> int:
    """How many partitions the topic gets. Raises `BrokerError` where there is no such topic. An empty list of
    assignments is not the same as none, which leaves the choice to us."""
    present = _partitions_of(controller, topic.name)
    if present == 0:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    more: int = topic.count - present
    if topic.assignments == [] and more > 0:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only 0 assignment(s) were specified.",
        )
    return max(more, len(topic.assignments or ()))


def _creatable_partitions(image: MetadataImage, topic: Message) -> CreatablePartitions:
    replicas = (enough_replicas(image, each.broker_ids) for each in topic.assignments or ())
    return CreatablePartitions(topic.name, topic.count, tuple(replicas))


def _partitions_failed(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"name": name, "error_code": int(code), "error_message": message or None}


def create_partitions_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"results": [_partitions_failed(topic.name, code, message) for topic in request.topics]}


ROWS: Final = (
    ApiRow(
        ApiKey.CREATE_TOPICS,
        (2, 7),
        (create_topics(create_topics_error),),
        forwarded=handle_create_topics,
        on_error=create_topics_error,
    ),
    ApiRow(
        ApiKey.DELETE_TOPICS,
        (1, 6),
        (delete_topics,),
        forwarded=handle_delete_topics,
        on_error=delete_topics_error,
    ),
    ApiRow(
        ApiKey.CREATE_PARTITIONS,
        (0, 3),
        (authorize_topics(AclOperation.ALTER, create_partitions_error, answers="results"),),
        forwarded=handle_create_partitions,
        on_error=create_partitions_error,
    ),
)
