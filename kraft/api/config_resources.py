"""ListConfigResources: of which resources configurations can be read. Version 0 knows client metrics only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraft.api.authz.checks import DESCRIBE_CONFIGS_OF_CLUSTER
from kraft.api.context import BrokerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import VALUES_PER_SLICE, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.image import MetadataImage

LOOKED_AT_PER_SLICE: Final = 2000
LISTED: Final = (
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
    ResourceType.GROUP,
)


async def handle(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    work = broker.node.long_work
    types = request.resource_types if ctx.version >= 1 else [ResourceType.CLIENT_METRICS]
    wanted = {each async for each in in_slices(work, types, VALUES_PER_SLICE)}
    if unknown := sorted(wanted - set(LISTED)):
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported resource types {unknown}")
    listed = []
    for kind in LISTED:
        if wanted and kind not in wanted:
            continue
        resources = _resources(broker.node.image, ctx.listener, kind)
        async for found, name in in_slices(work, resources, LOOKED_AT_PER_SLICE):
            if found == kind:
                listed.append({"resource_name": name, "resource_type": int(kind)})
    return {"error_code": int(ErrorCode.NONE), "config_resources": listed}


def _resources(image: MetadataImage, listener: str, kind: ResourceType) -> Iterable[tuple[int, str]]:
    """The resources of that type, perhaps among others."""
    match kind:
        case ResourceType.TOPIC:
            return ((kind, name) for name in image.topics_by_name)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [(kind, str(broker.broker_id)) for broker, _ in image.alive_brokers(listener)]
        case _:
            return image.configs


ROWS: Final = (ApiRow(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), (DESCRIBE_CONFIGS_OF_CLUSTER,), broker=handle),)
