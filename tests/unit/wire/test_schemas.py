"""What is looked up in versions other than the one spoken."""

from __future__ import annotations

import pytest

from kraft.wire import schemas
from kraft.wire.api_keys import ApiKey
from kraft.wire.schemas import REQUEST, RESPONSE, MessageId, default_in_any_version


@pytest.mark.parametrize(
    ("message", "path", "name"),
    [
        (MessageId(ApiKey.FETCH, RESPONSE), ("responses",), "topic"),  # gone since version 13
        (MessageId(ApiKey.FETCH, REQUEST), (), "replica_id"),
        (MessageId(ApiKey.OFFSET_FETCH, REQUEST), ("groups", "topics"), "name"),  # in 8 and 9 only
        (MessageId(ApiKey.METADATA, RESPONSE), (), "throttle_time_ms"),
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
