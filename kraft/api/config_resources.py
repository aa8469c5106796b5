"""ListConfigResources: of which resources configurations can be read. Version 0 knows client metrics only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.api.authz.checks import DESCRIBE_CONFIGS_OF_CLUSTER
from kraft.api.context import BrokerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.image import MetadataImage

LISTED: Final = (
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
    ResourceType.GROUP,
)


def handle(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    wanted = request.resource_types if ctx.version >= 1 else [ResourceType.CLIENT_METRICS]
    if unknown := sorted(set(wanted) - set(LISTED)):
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported resource types {unknown}")
    return {
        "error_code": int(ErrorCode.NONE),
        "config_resources": [
            {"resource_name": name, "resource_type": int(kind)}
            for kind in LISTED
            if not wanted or kind in wanted
            for name in _names(broker.node.image, ctx.listener, kind)
        ],
    }


def _names(image: MetadataImage, listener: str, kind: ResourceType) -> Iterator[str]:
    match kind:
        case ResourceType.TOPIC:
            yield from sorted(image.topics_by_name)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            for broker, _ in image.alive_brokers(listener):
                yield str(broker.broker_id)
        case _:
            yield from sorted(name for configured, name in image.configs if configured == kind)


ROWS: Final = (ApiRow(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), (DESCRIBE_CONFIGS_OF_CLUSTER,), broker=handle),)
