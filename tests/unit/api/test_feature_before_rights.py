"""What a cluster does not offer is refused before anybody's rights are asked, as by Kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api.authz.authorization import authorize
from kraft.api.consumer_groups import ROWS
from kraft.api.row import ApiRow
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import GROUP_VERSION
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.security.authorizer import Authorizer

pytestmark = pytest.mark.row("U4")


def _refusal(row: ApiRow, features: dict[str, int], protocols: tuple[str, ...]) -> ErrorCode:
    """What somebody without any rights is told."""
    config = SimpleNamespace(group_coordinator_rebalance_protocols=protocols)
    node: Any = SimpleNamespace(image=MetadataImage(features=features), config=config)
    ctx: Any = SimpleNamespace(principal="User:anna", client_host="10.0.0.1")
    request: Any = SimpleNamespace(
        group_id="g", group_ids=["g"], subscribed_topic_names=["t"], include_authorized_operations=False
    )
    try:
        answer: Any = authorize(row.authorization, Authorizer(), node, ctx, request)
    except BrokerError as error:
        return error.code
    (group,) = answer["groups"]
    return ErrorCode(group["error_code"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_consumer_protocol_where_it_is_not_enabled(row: ApiRow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.api.authz.checks.replaced", lambda request, **changes: request)
    on, both = {GROUP_VERSION: 1}, ("classic", "consumer")
    assert _refusal(row, {}, both) is ErrorCode.UNSUPPORTED_VERSION
    assert _refusal(row, on, ("classic",)) is ErrorCode.UNSUPPORTED_VERSION
    assert _refusal(row, on, both) is ErrorCode.GROUP_AUTHORIZATION_FAILED
