"""Throttling by client quotas: the throttle time in responses, and connections that are muted for it.

    metadata (delta, image) -> QuotaUpdates -> node.quotas; None, and free, while nothing is limited
    dispatch, api/produce, api/fetch, api/topics -> here -> data_plane/quotas -> throttle_time_ms, Peer.mute

As since KIP-219, a response is sent at once and says for how long the connection is muted. What nodes ask
each other to replicate, to carry transactions and to stay in the cluster is never throttled: other such
requests, heartbeats among them, would wait behind it on its connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import Final, NamedTuple

from data_plane.quotas.client_quotas import PERCENT, ClientQuotas
from data_plane.quotas.limits import QuotaClient, QuotaLimits, limits_of
from kraft.api.context import NodeContext
from kraft.api.prepared import Prepared
from kraft.api.request_context import RequestContext, Role
from kraft.api.response import Response
from kraft.wire.bridge import response_has
from metadata_quorum.foundation.quota_types import IP, QuotaEntityKey, QuotaType
from metadata_quorum.foundation.supervision import supervised
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.security.acls import CLUSTER_NAME, AclOperation, AclResourceType

THROTTLE_TIME_MS: Final = "throttle_time_ms"
MS_PER_S: Final = 1000
LONGEST_MS: Final = 2**31 - 1
"""More has no room in a response: 24 days."""

Quotas = Mapping[QuotaEntityKey, Mapping[str, float]]
Limits = dict[QuotaType, QuotaLimits]
Hosts = dict[str, tuple[str, ...]]
"""Who has a quota for an address; `_holder` says whose holds. A name that was not looked up stands for
itself, which is nobody's address."""


def client_of(ctx: RequestContext) -> QuotaClient:
    """The client as quotas know it: a user without the type of the principal, and a client id."""
    return QuotaClient(ctx.principal.partition(":")[2], ctx.client_id or "")


def in_ms(pause_s: float) -> int:
    """A quota may be as small as anybody likes, and a pause as long, even infinite."""
    return LONGEST_MS if pause_s >= LONGEST_MS / MS_PER_S else round(pause_s * MS_PER_S)


def throttle_connection(ctx: RequestContext, pause_s: float) -> int:
    """Mute the client's connection; returns the throttle time for its response, in ms. For a forwarded
    request only that: the broker that forwarded it has the client's connection."""
    pause_ms = in_ms(pause_s)
    if pause_ms > 0 and ctx.forwarded_for is None:
        ctx.connection.mute(pause_ms / MS_PER_S)
    return pause_ms


def throttled(
    node: NodeContext, ctx: RequestContext, response: Response, *, from_broker: bool = False
) -> Response:
    """The response with its throttle time, if a quota is used up: by the time that the request took or, where
    the response says so already, by what it did."""
    if is_between_nodes(node, ctx, from_broker=from_broker):
        return response
    asked_s = response.get(THROTTLE_TIME_MS, 0) / MS_PER_S
    pause_ms = throttle_connection(ctx, max(asked_s, _busy(node, ctx, node.loop.time())))
    if pause_ms > 0 and response_has(ctx.api_key, THROTTLE_TIME_MS):
        return {**response, THROTTLE_TIME_MS: pause_ms}
    return response


def is_between_nodes(node: NodeContext, ctx: RequestContext, *, from_broker: bool) -> bool:
    """Whether a node sent the request on its own account. The request (`from_broker`) or the listener claims
    so, and ClusterAction allows it."""
    if not from_broker and (ctx.role is not Role.CONTROLLER or ctx.forwarded_for is not None):
        return False
    if node.authorizer is None:
        return True
    operation, resource = AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER
    return node.authorizer.allows(ctx.principal, ctx.client_host, operation, resource, CLUSTER_NAME)


def charge_produce(node: NodeContext, ctx: RequestContext, *, answered: bool = True) -> int:
    """Count a produce request; returns the throttle time in ms. `answered`: False for acks=0, where no
    response tells it."""
    if node.quotas is None or ctx.cost is None:
        return 0
    now = node.loop.time()
    pause_s = node.quotas.used(QuotaType.PRODUCED_BYTES, client_of(ctx), ctx.cost.request_bytes, now)
    return throttle_connection(ctx, max(pause_s, _busy(node, ctx, now)) if answered else pause_s)


def charge_fetch(node: NodeContext, ctx: RequestContext, size: int) -> int:
    """Count `size` bytes of records for a consumer; returns the throttle time in ms. If it is throttled
    the records are not sent, and do not count."""
    if node.quotas is None:
        return 0
    now, client = node.loop.time(), client_of(ctx)
    pause_s = node.quotas.used(QuotaType.FETCHED_BYTES, client, size, now)
    pause_ms = throttle_connection(ctx, max(pause_s, _busy(node, ctx, now)))
    if pause_ms > 0:
        node.quotas.give_back(QuotaType.FETCHED_BYTES, client, size, now)
    return pause_ms


def max_fetch_bytes(node: NodeContext, ctx: RequestContext) -> int | None:
    """The most that one response can have: more would always be throttled. None: no limit."""
    most = None if node.quotas is None else node.quotas.most_at_once(QuotaType.FETCHED_BYTES, client_of(ctx))
    return None if most is None else int(most)


def charge_connection(node: NodeContext, host: str) -> float:
    """Count a new connection; returns for how many seconds it must wait, 0 to accept it."""
    return 0.0 if node.quotas is None else node.quotas.connected(host, node.loop.time())


def _busy(node: NodeContext, ctx: RequestContext, now: float) -> float:
    if node.quotas is None or ctx.cost is None:
        return 0.0
    percent = ctx.cost.spent_s * PERCENT
    return node.quotas.used(QuotaType.REQUEST_TIME, client_of(ctx), percent, now)


class QuotaUpdates:
    """Keeps a node's quotas as they are in the metadata: a change looks at what has changed, however many
    others there are. Host names are resolved when a quota is set."""

    def __init__(self, node: NodeContext, quotas: ClientQuotas) -> None:
        self._node = node
        self._quotas = quotas
        self._used = EMPTY_IMAGE.quotas
        """Of the image: they are in use."""
        self._hosts: Hosts = {}
        self._addresses: dict[str, frozenset[str]] = {}
        """Of host names that were looked up."""
        self._unknown: dict[str, None] = {}
        """Host names that are to be looked up, in this order."""
        self._lookup: asyncio.Task[None] | None = None
        self._prepared = Prepared[Quotas, _Whole](_whole)

    def prepare(self, image: MetadataImage) -> None:
        """In another thread, before `take`."""
        self._prepared.prepare(image.quotas)

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Subscribed to the metadata."""
        whole = self._prepared.take(image.quotas)
        before, self._used = self._used, image.quotas
        is_next = delta.image.quotas is before
        if is_next and not delta.changed_quotas:
            return
        if is_next and whole is None:
            self._change(delta.changed_quotas)
        else:
            limits, self._hosts, self._unknown = whole or _whole(image.quotas)
            self._addresses = {}
            self._quotas.use(limits)
        self._node.quotas = self._quotas if image.quotas else None
        if self._unknown and (self._lookup is None or self._lookup.done()):
            self._lookup = supervised(self._node.loop, self._look_up(), "hosts of quotas")

    def _change(self, quotas: Quotas) -> None:
        for entity, values in quotas.items():
            host = _host_of(entity)
            if host is None:
                self._quotas.change({entity: values})
                continue
            self._stands_for(host, self._addresses_of(host) if values else frozenset())
            if values and not _is_address(host):
                self._unknown[host] = None

    def _addresses_of(self, host: str) -> frozenset[str]:
        return self._addresses.get(host, frozenset({_normal(host)}))

    def _stands_for(self, host: str, addresses: frozenset[str]) -> None:
        """Those are its addresses from now on, none where it has no quota any more."""
        stood_for = self._addresses_of(host)
        self._addresses.pop(host, None)
        if ((IP, host),) in self._used and not _is_address(host):
            self._addresses[host] = addresses
        for address in stood_for | addresses:
            hosts = tuple(each for each in self._hosts.pop(address, ()) if each != host)
            if address in addresses:
                hosts += (host,)
            if hosts:
                self._hosts[address] = hosts
            values = self._used.get(((IP, _holder(hosts)),), {}) if hosts else {}
            self._quotas.change({((IP, address),): values})

    async def _look_up(self) -> None:
        while self._unknown:
            host = next(iter(self._unknown))
            del self._unknown[host]
            addresses = await addresses_of(self._node.loop, host)
            if ((IP, host),) in self._used:
                self._stands_for(host, addresses)


class _Whole(NamedTuple):
    """What is made of all quotas, while no host name has been looked up."""

    limits: Limits
    hosts: Hosts
    unknown: dict[str, None]


def _whole(quotas: Quotas) -> _Whole:
    found: dict[QuotaEntityKey, Mapping[str, float]] = {}
    hosts: Hosts = {}
    for entity, values in quotas.items():
        host = _host_of(entity)
        if host is None:
            found[entity] = values
        else:
            address = _normal(host)
            hosts[address] = (*hosts.get(address, ()), host)
    for address, of_address in hosts.items():
        found[((IP, address),)] = quotas[((IP, _holder(of_address)),)]
    names = (each for of_address in hosts.values() for each in of_address)
    return _Whole(limits_of(found), hosts, {each: None for each in names if not _is_address(each)})


def _host_of(entity: QuotaEntityKey) -> str | None:
    """None where it is of a client, or of all addresses that have no quota of their own."""
    match entity:
        case ((kind, name),) if kind == IP:
            return name
    return None


def _holder(hosts: tuple[str, ...]) -> str:
    """Whose quota holds of those that stand for one address: its own before a name's, in whatever order they
    were set or looked up. (One alone, as most are, is not looked at.)"""
    return hosts[0] if len(hosts) == 1 else max(hosts, key=lambda host: (_is_address(host), host))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _normal(host: str) -> str:
    """An address as sockets write it."""
    return str(ipaddress.ip_address(host)) if _is_address(host) else host


async def addresses_of(loop: asyncio.AbstractEventLoop, host: str) -> frozenset[str]:
    """The addresses of a host name, or an address itself; empty if the name cannot be resolved."""
    if _is_address(host):
        return frozenset({_normal(host)})
    try:
        return frozenset(str(found[4][0]) for found in await loop.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return frozenset()
