"""Rights to topics where a slip would tell or take what it must not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.api.authz.checks import RequestPrincipal
from kraft.api.authz.group_checks import offset_fetch
from kraft.api.authz.raw_requests import read_authorization
from kraft.api.authz.topic_checks import delete_topics, describe_cluster, metadata
from kraft.api.group_offsets import fetch_error
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_request, decode_response, encode_request, encode_response
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import AccessControlEntryRecord, MetadataRecord, TopicRecord
from metadata_quorum.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from metadata_quorum.security.authorizer import Authorizer

pytestmark = pytest.mark.row("U4")

HERS, SECRET = UUID(int=1001), UUID(int=1002)


def image_of(*records: MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record)
    return delta.apply()


TOPICS = image_of(TopicRecord(name="hers", topic_id=HERS), TopicRecord(name="secret", topic_id=SECRET))


def anna(*operations: AclOperation) -> RequestPrincipal:
    """Who may do this to the topic "hers"."""
    acls = [
        AccessControlEntryRecord(
            id=UUID(int=number),
            resource_type=AclResourceType.TOPIC,
            resource_name="hers",
            pattern_type=PatternType.LITERAL,
            principal="User:anna",
            host="*",
            operation=operation,
            permission_type=AclPermissionType.ALLOW,
        )
        for number, operation in enumerate(operations)
    ]
    return RequestPrincipal(Authorizer().with_acls(acls), "User:anna", "10.0.0.1")


def named(name: str | None, topic_id: UUID = ZERO_UUID) -> Any:
    return SimpleNamespace(name=name, topic_id=topic_id)


def test_a_topic_that_only_the_controller_knows_is_not_deleted_without_a_right() -> None:
    """By its id, while the broker beside that controller has not begun yet."""
    node: Any = SimpleNamespace(image=EMPTY_IMAGE, committed_metadata=SimpleNamespace(image=TOPICS))
    ctx: Any = SimpleNamespace()
    request: Any = SimpleNamespace(topic_names=[], topics=[named(None, SECRET)])
    answer: Any = delete_topics(anna(AclOperation.DELETE), node, ctx, request)
    (refused,) = answer["responses"]
    assert refused["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert refused["name"] is None
    assert refused["topic_id"] == SECRET


def test_some_are_deleted_and_some_refused() -> None:
    node: Any = SimpleNamespace(image=TOPICS, committed_metadata=SimpleNamespace(image=TOPICS))
    ctx: Any = SimpleNamespace()
    unknown = UUID(int=1003)
    request: Any = SimpleNamespace(
        topic_names=[], topics=[named(None, HERS), named("secret"), named(None, unknown)]
    )
    authorized: Any = delete_topics(anna(AclOperation.DELETE), node, ctx, request)
    assert [topic.topic_id for topic in authorized.request.topics] == [HERS, unknown]
    assert len(request.topics) == 3, "the request itself stays as it came"
    (refused,) = authorized.complete({"responses": []})["responses"]
    assert refused["name"] == "secret"


@pytest.mark.parametrize(
    ("name", "creates", "let_through"),
    [("hers", True, True), ("secret", True, False), ("hers-too", True, False), ("hers-too", False, False)],
)
def test_metadata_creates_nothing_for_who_may_only_look(name: str, creates: bool, let_through: bool) -> None:
    node: Any = SimpleNamespace(image=TOPICS, config=SimpleNamespace(auto_create_topics_enable=True))
    ctx: Any = SimpleNamespace(version=12)
    request: Any = SimpleNamespace(
        topics=[named(name)],
        allow_auto_topic_creation=creates,
        include_topic_authorized_operations=False,
        include_cluster_authorized_operations=False,
    )
    authorized: Any = metadata(anna(AclOperation.DESCRIBE), node, ctx, request)
    assert [topic.name for topic in authorized.request.topics] == ([name] if let_through else [])


def test_an_empty_list_of_the_oldest_version_does_not_become_all_topics() -> None:
    node: Any = SimpleNamespace(image=TOPICS, config=SimpleNamespace(auto_create_topics_enable=False))
    ctx: Any = SimpleNamespace(version=0)
    request: Any = SimpleNamespace(
        topics=[named("secret")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        include_cluster_authorized_operations=False,
    )
    authorized: Any = metadata(anna(), node, ctx, request)
    everything = {"topics": [{"name": "hers", "error_code": 0}, {"name": "secret", "error_code": 0}]}
    (described,) = authorized.complete(everything)["topics"]
    assert (described["name"], described["error_code"]) == ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_what_metadata_no_longer_knows_is_not_read_by_its_id() -> None:
    """Its replicas are removed a little later, of very many partitions some at a time."""
    who = anna(AclOperation.READ)
    node: Any = SimpleNamespace(image=TOPICS, authorizer=who.authorizer)
    ctx: Any = SimpleNamespace(principal=who.principal, client_host=who.host)
    may_read = read_authorization(node, ctx, follower=False)
    assert may_read is not None
    assert may_read("", HERS)
    assert not may_read("", SECRET)
    node.image = EMPTY_IMAGE
    for topic_id in (HERS, SECRET):
        with pytest.raises(BrokerError) as refused:
            may_read("", topic_id)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_topics_that_are_all_refused_are_no_refusal_of_the_request() -> None:
    """A client takes an error of the whole response for one of its group."""
    acl = AccessControlEntryRecord(
        id=UUID(int=1),
        resource_type=AclResourceType.GROUP,
        resource_name="g",
        pattern_type=PatternType.LITERAL,
        principal="User:anna",
        host="*",
        operation=AclOperation.DESCRIBE,
        permission_type=AclPermissionType.ALLOW,
    )
    requester = RequestPrincipal(Authorizer().with_acls([acl]), "User:anna", "10.0.0.1")
    fields = {"group_id": "g", "topics": [{"name": "secret", "partition_indexes": [0]}]}
    request = decode_request(ApiKey.OFFSET_FETCH, 7, encode_request(ApiKey.OFFSET_FETCH, 7, fields))
    node: Any = SimpleNamespace(image=TOPICS)
    ctx: Any = SimpleNamespace(version=7)
    fields = offset_fetch(fetch_error)(requester, node, ctx, request)  # type: ignore[assignment]
    answer = decode_response(ApiKey.OFFSET_FETCH, 7, encode_response(ApiKey.OFFSET_FETCH, 7, fields))
    assert answer.error_code == ErrorCode.NONE
    assert answer.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_of_a_cluster_that_is_not_described_no_operations_are_told() -> None:
    request: Any = SimpleNamespace(include_cluster_authorized_operations=True)
    ctx: Any = SimpleNamespace(role=None)
    checked = describe_cluster(anna(), SimpleNamespace(), ctx, request)  # type: ignore[arg-type]
    failed = {"error_code": int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)}
    assert checked.complete(dict(failed)) == failed
    assert "cluster_authorized_operations" in checked.complete({"error_code": 0})
