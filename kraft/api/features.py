"""UpdateFeatures: finalized levels of features, decided by the active controller."""

from __future__ import annotations

from typing import Final

from kraft.api.authz.checks import ALTER_CLUSTER
from kraft.api.bounds import check_few
from kraft.api.context import ControllerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.features import SUPPORTED_FEATURES
from metadata_quorum.foundation.model import FeatureRange
from metadata_quorum.protocol.commands import FeatureUpdate

_LAST_WITH_RESULTS: Final = 1
"""Later versions have one error for all, for it is all or nothing."""


async def handle(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    check_few(request.feature_updates)
    # Version 0 says allow_downgrade in place of a type; as in Kafka 4.1 it asks for an upgrade.
    updates = tuple(
        FeatureUpdate(name=each.feature, level=each.max_version_level, upgrade_type=each.upgrade_type)
        for each in request.feature_updates
    )
    supported = tuple(FeatureRange(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items())
    await controller.quorum_controller.update_features(
        updates, supported, validate_only=request.validate_only
    )
    named = dict.fromkeys(update.name for update in updates)
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "results": [{"feature": name, "error_code": 0, "error_message": None} for name in named]
        if ctx.version <= _LAST_WITH_RESULTS
        else [],
    }


ROWS: Final = (ApiRow(ApiKey.UPDATE_FEATURES, (0, 2), (ALTER_CLUSTER,), forwarded=handle),)
