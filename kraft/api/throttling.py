"""Quotas at work: what an answer says of throttling, and the connection that is not read meanwhile.

    metadata (delta, image) -> QuotaUpdates -> node.quotas; None, and free, while nothing is limited
    dispatch, api/produce, api/fetch, api/topics -> here -> data_plane/quotas -> throttle_time_ms, Peer.mute

As since KIP-219 the answer leaves at once, and the client is told how long it will not be heard. What nodes
ask of each other is never limited.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import Final

from data_plane.quotas.client_quotas import PERCENT, ClientQuotas
from data_plane.quotas.limits import IP, QuotaClient, QuotaEntity, QuotaType
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.response import Response
from kraft.wire.bridge import response_has
from metadata_quorum.foundation.supervision import supervised
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

THROTTLE_TIME_MS: Final = "throttle_time_ms"
MS_PER_S: Final = 1000

Addresses = Mapping[str, frozenset[str]]


def client_of(ctx: RequestContext) -> QuotaClient:
    """Who asks, as quotas know it: without the kind of the principal."""
    return QuotaClient(ctx.principal.partition(":")[2], ctx.client_id or "")


def throttle_connection(ctx: RequestContext, pause_s: float) -> int:
    """Let the client's connection rest; what its answer says. A request that another broker has passed on
    is only answered: that broker reads the client's connection."""
    pause_ms = round(pause_s * MS_PER_S)
    if pause_ms > 0 and ctx.forwarded_for is None:
        ctx.connection.mute(pause_ms / MS_PER_S)
    return pause_ms


def throttled(node: NodeContext, ctx: RequestContext, response: Response) -> Response:
    """The response with its throttle time, where a quota has been used up by the time that it took or, as
    the response says already, by what it did."""
    asked_s = response.get(THROTTLE_TIME_MS, 0) / MS_PER_S
    pause_ms = throttle_connection(ctx, max(asked_s, _busy(node, ctx, node.loop.time())))
    if pause_ms > 0 and response_has(ctx.api_key, THROTTLE_TIME_MS):
        return {**response, THROTTLE_TIME_MS: pause_ms}
    return response


def charge_produce(node: NodeContext, ctx: RequestContext, *, answered: bool = True) -> int:
    """Count a produce request. Nobody hears of the time that one without acks took."""
    if node.quotas is None or ctx.work is None:
        return 0
    now = node.loop.time()
    pause_s = node.quotas.used(QuotaType.PRODUCED_BYTES, client_of(ctx), ctx.work.request_bytes, now)
    return throttle_connection(ctx, max(pause_s, _busy(node, ctx, now)) if answered else pause_s)


def charge_fetch(node: NodeContext, ctx: RequestContext, size: int) -> int:
    """Count so many bytes of records for a consumer. Where it must pause they are not to be handed out, and
    do not count."""
    if node.quotas is None:
        return 0
    now, client = node.loop.time(), client_of(ctx)
    pause_s = node.quotas.used(QuotaType.FETCHED_BYTES, client, size, now)
    pause_ms = throttle_connection(ctx, max(pause_s, _busy(node, ctx, now)))
    if pause_ms > 0:
        node.quotas.give_back(QuotaType.FETCHED_BYTES, client, size, now)
    return pause_ms


def max_fetch_bytes(node: NodeContext, ctx: RequestContext) -> int | None:
    """More than this in one answer would never be let through."""
    most = None if node.quotas is None else node.quotas.most_at_once(QuotaType.FETCHED_BYTES, client_of(ctx))
    return None if most is None else int(most)


def charge_connection(node: NodeContext, host: str) -> float:
    """Count a new connection; for how many seconds it must be kept out, 0 to let it in."""
    return 0.0 if node.quotas is None else node.quotas.connected(host, node.loop.time())


def _busy(node: NodeContext, ctx: RequestContext, now: float) -> float:
    if node.quotas is None or ctx.work is None:
        return 0.0
    percent = ctx.work.spent_s * PERCENT
    return node.quotas.used(QuotaType.REQUEST_TIME, client_of(ctx), percent, now)


class QuotaUpdates:
    """Keeps a node's quotas as the metadata has them. Hosts' names are looked up when they are set."""

    def __init__(self, node: NodeContext, quotas: ClientQuotas) -> None:
        self._node = node
        self._quotas = quotas
        self._lookup: asyncio.Task[None] | None = None

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Subscribed to the metadata."""
        if not delta.changed_quotas:
            return
        self._use(image, {})
        if self._lookup is not None:
            self._lookup.cancel()
            self._lookup = None
        names = [name for entity in image.quotas for kind, name in entity if kind == IP and name is not None]
        unknown = [name for name in names if not _is_address(name)]
        if unknown:
            self._lookup = supervised(self._node.loop, self._look_up(image, unknown), "hosts of quotas")

    async def _look_up(self, image: MetadataImage, names: list[str]) -> None:
        self._use(image, {name: await addresses_of(self._node.loop, name) for name in names})

    def _use(self, image: MetadataImage, addresses: Addresses) -> None:
        quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        for entity, values in image.quotas.items():
            match entity:
                case ((kind, str(host)),) if kind == IP:
                    known = addresses.get(host, frozenset({_normal(host)}))
                    quotas.update(dict.fromkeys((((IP, address),) for address in known), values))
                case _:
                    quotas[entity] = values
        self._quotas.take(quotas)
        self._node.quotas = self._quotas if quotas else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _normal(host: str) -> str:
    """An address as sockets tell it."""
    return str(ipaddress.ip_address(host)) if _is_address(host) else host


async def addresses_of(loop: asyncio.AbstractEventLoop, host: str) -> frozenset[str]:
    """What a host's name stands for; an address stands for itself. Nothing where it cannot be resolved."""
    if _is_address(host):
        return frozenset({_normal(host)})
    try:
        return frozenset(str(found[4][0]) for found in await loop.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return frozenset()
