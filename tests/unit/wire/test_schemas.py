"""What is looked up in versions other than the one spoken."""

from __future__ import annotations

import pytest

from kraft.wire import schemas
from kraft.wire.schemas import REQUEST, RESPONSE, MessageId, default_in_any_version


@pytest.mark.parametrize(
    ("message", "path", "name"),
    [
        (MessageId(1, RESPONSE), ("responses",), "topic"),  # gone since version 13
        (MessageId(1, REQUEST), (), "replica_id"),
        (MessageId(9, REQUEST), ("groups", "topics"), "name"),  # in 8 and 9 only
        (MessageId(3, RESPONSE), (), "throttle_time_ms"),
    ],
)
def test_few_versions_are_loaded_to_find_a_name(
    message: MessageId, path: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch
):
    loaded: list[int] = []
    plan_for = schemas.plan_for

    def noted(message: MessageId, version: int) -> schemas.StructPlan:
        loaded.append(version)
        return plan_for(message, version)

    monkeypatch.setattr(schemas, "plan_for", noted)
    default_in_any_version.__wrapped__(message, path, name)
    assert len(loaded) <= 3, loaded
