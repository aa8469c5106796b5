"""Topics that are to be deleted, named twice, by both or by neither: each is refused for itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.api import topics
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import TopicRecord

pytestmark = pytest.mark.row("U2")

A, B, NOBODY = UUID(int=1), UUID(int=2), UUID(int=9)


def image() -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for name, topic_id in (("a", A), ("b", B)):
        delta.replay(TopicRecord(name=name, topic_id=topic_id))
    return delta.apply()


def named(name: str | None, topic_id: UUID = ZERO_UUID) -> Any:
    return SimpleNamespace(name=name, topic_id=topic_id)


@pytest.mark.parametrize(
    ("entries", "wanted", "refused"),
    [
        ([named("a"), named(None, B)], ["a", B], []),
        ([named("a"), named("a"), named("b")], ["b"], [("a", ZERO_UUID, "Duplicate topic name.")]),
        ([named(None, A), named(None, A)], [], [(None, A, "Duplicate topic id.")]),
        ([named(None)], [], [(None, ZERO_UUID, "Neither topic name nor id were specified.")]),
        ([named("a", A)], [], [("a", A, "You may not specify both topic name and topic id.")]),
        (
            [named("a"), named(None, A), named(None, NOBODY)],
            [NOBODY],
            [("a", A, "The provided topic name maps to an ID that was already supplied.")],
        ),
    ],
)
def test_each_topic_is_named_once(entries: list[Any], wanted: Any, refused: Any) -> None:
    request: Any = SimpleNamespace(topic_names=[], topics=entries)
    keys, answers = topics.named_for_deletion(image(), request)
    assert keys == wanted
    assert [(each["name"], each["topic_id"], each["error_message"]) for each in answers] == refused
    assert {each["error_code"] for each in answers} <= {ErrorCode.INVALID_REQUEST}
