"""controller_mutation_rate: how many partitions a client may have created and deleted (KIP-599).

    api/topics, on the active controller -> here, per topic -> data_plane/quotas: a credit

Clients that know THROTTLING_QUOTA_EXCEEDED are refused while they are over the quota; older ones are served,
and throttled.
"""

from __future__ import annotations

from typing import Final

from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.throttling import client_of, in_ms, is_between_nodes
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

_REFUSED_FROM: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""The first versions that understand a refusal."""


class ControllerMutationQuota:
    """What one request does to the cluster's partitions."""

    __slots__ = ("_ctx", "_node", "_pause_s")

    def __init__(self, node: NodeContext, ctx: RequestContext) -> None:
        self._node = node
        self._ctx = ctx
        self._pause_s = 0.0

    def count(self, partitions: int) -> None:
        """Raises `BrokerError`, THROTTLING_QUOTA_EXCEEDED, where the client has to wait first."""
        quotas, ctx = self._node.quotas, self._ctx
        if quotas is None or is_between_nodes(self._node, ctx, from_broker=False):  # created on demand
            return
        strict = ctx.version >= _REFUSED_FROM[ctx.api_key]
        may, self._pause_s = quotas.mutated(client_of(ctx), partitions, self._node.loop.time(), strict=strict)
        if not may:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    @property
    def throttle_time_ms(self) -> int:
        """The throttle time for the response."""
        return in_ms(self._pause_s)
