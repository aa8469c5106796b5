"""The JSON API: its paths, in one table, from which its OpenAPI description (openapi.py) is made too.

These only read; writes.py has what changes something. Who asks has logged in (login.py), and sees what the
cluster's ACLs let them see.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isfinite
from typing import Any, Final

from kraft.api.context import BrokerContext
from kraft.http.client_requests import Client, Pauses
from kraft.http.cluster_view import ClusterView
from kraft.http.login import Visitor
from kraft.http.messages import MAX_MESSAGES, messages
from kraft.http.refused import Refused
from kraft.http.security_view import acls, quotas, users
from kraft.metrics.sources import Sources
from kraft.monitoring.client_telemetry import TelemetryClient
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.metadata.image import TopicImage

Json = dict[str, Any]
Answer = Json | bytes
"""An answer that may be long has been encoded already, beside the loop and one at a time."""


def encoded(body: Json) -> bytes:
    return json.dumps(body, indent=1).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    visitor: Visitor
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)
    """The body of a POST."""

    def number(self, name: str) -> int | None:
        """A number in the query; None if it is not given. Raises `Refused`."""
        text = self.query.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise Refused(400, f"{name}={text[:40]} is no number")
        return int(text)


@dataclass(frozen=True, slots=True)
class Service:
    """What the answers are made of."""

    sources: Sources
    view: ClusterView
    pauses: Pauses = field(default_factory=Pauses)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Batches are opened for one reader at a time: in memory they may take a hundred times their size."""


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    """The path, with {parameters}."""
    summary: str
    answer: Callable[[Service, Asked], Coroutine[Any, Any, Answer]]
    query: Mapping[str, str] | None = None
    """What may be asked for, and what it means."""

    def match(self, path: str) -> Mapping[str, str] | None:
        found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path), path)
        return None if found is None else found.groupdict()


# ---- answers ---------------------------------------------------------------------------------------


async def _cluster(service: Service, asked: Asked) -> Answer:
    return await service.view.snapshot(asked.visitor, encoded, asked.query.get("topic"))


async def _events(service: Service, asked: Asked) -> Json:
    return {"events": events_since(service, asked.visitor, asked.number("since") or 0)}


def events_since(service: Service, visitor: Visitor, number: int) -> list[Json]:
    """The events after that number that the visitor may see."""
    events = service.sources.events.since(number)
    return [asdict(each) for each in events if not each.topic or visitor.may_see_topic(each.topic)]


async def _topics(service: Service, asked: Asked) -> Answer:
    part, limit = asked.query.get("containing", ""), asked.number("limit")

    def told(found: list[Json]) -> bytes:
        shown = found if limit is None else found[:limit]
        return encoded({"topics": shown, "more": len(found) - len(shown)})

    return await service.view.topics(asked.visitor, told, part)


async def _topic(service: Service, asked: Asked) -> Answer:
    topic = _known_topic(service, asked)
    configs = dict(service.sources.node.image.config(ResourceType.TOPIC, topic.name))

    def told(snapshot: Json) -> bytes:
        return encoded(
            {
                "name": topic.name,
                "id": str(topic.id),
                "configs": configs if asked.visitor.may_see_configs(topic.name) else None,
                "size": sum(each["size"] or 0 for each in snapshot["partitions"]),
                "partitions": snapshot["partitions"],
                "more_partitions": snapshot["more_partitions"],
            }
        )

    return await service.view.snapshot(asked.visitor, told, topic.name)


async def _messages(service: Service, asked: Asked) -> Answer:
    tp = known_partition(service, asked)
    if not asked.visitor.may_read_topic(tp.topic):
        raise Refused(403, f"{asked.visitor.principal} may not READ topic {tp.topic}")
    offset, time_ms = asked.number("offset"), asked.number("time_ms")
    limit = asked.number("limit")
    client = client_of(service, asked)
    limit = 20 if limit is None else limit
    return await messages(client, tp, offset, time_ms, limit, service.opening, encoded)


async def _groups(service: Service, asked: Asked) -> Answer:
    return await service.view.groups(asked.visitor, lambda found: encoded({"groups": found}))


async def _group(service: Service, asked: Asked) -> Answer:
    name = asked.path["group"]

    def told(found: list[Json]) -> bytes | None:
        return next((encoded(group) for group in found if group["id"] == name), None)

    answer = await service.view.groups(asked.visitor, told)
    if answer is None:
        raise Refused(404, f"there is no group {name[:200]}, or its coordinator does not answer")
    return answer


async def _transactions(service: Service, asked: Asked) -> Answer:
    return await service.view.transactions(asked.visitor, lambda found: encoded({"transactions": found}))


async def _quotas(service: Service, asked: Asked) -> Json:
    if not asked.visitor.may_see_quotas():
        raise Refused(403, f"{asked.visitor.principal} may not DESCRIBE_CONFIGS of the cluster")
    return await service.view.beside(partial(quotas, service.sources.node.image))


async def _users(service: Service, asked: Asked) -> Json:
    return await service.view.beside(partial(users, service.sources.node.image))


async def _acls(service: Service, asked: Asked) -> Json:
    node = service.sources.node
    rows = await service.view.beside(partial(acls, node.image))
    return {"authorizer": node.authorizer is not None, **rows}


async def _clients(service: Service, asked: Asked) -> Answer:
    node = service.sources.node
    now = node.loop.time()
    clients = list(node.client_telemetry.clients(now))
    return await service.view.beside(lambda: encoded(_described_clients(clients, now)))


def _described_clients(clients: list[TelemetryClient], now: float) -> Json:
    """Two hundred clients may have three hundred time series each. These change meanwhile, beside us: of each
    client they are copied at once."""
    return {
        "clients": [
            {
                "instance_id": str(client.instance_id),
                "client_id": client.client_id,
                "software": client.software,
                "host": client.host,
                "pushes": client.pushes,
                "heard_s_ago": round(now - client.heard_at, 1),
                "metrics": [
                    {
                        "name": name,
                        "attributes": dict(attributes),
                        "value": value if isfinite(value) else None,
                    }
                    for (name, attributes), value in dict(client.figures).items()
                ],
            }
            for client in clients
        ]
    }


def _known_topic(service: Service, asked: Asked) -> TopicImage:
    name = asked.path["topic"]
    topic = service.sources.node.image.topics_by_name.get(name)
    if topic is None or not asked.visitor.may_see_topic(name):
        raise Refused(404, f"there is no topic {name[:249]}")
    return topic


def known_partition(service: Service, asked: Asked) -> TopicPartition:
    """The partition that the path names. Raises `Refused`."""
    topic = _known_topic(service, asked)
    number = asked.path["partition"]
    if not re.fullmatch(r"[0-9]{1,10}", number) or int(number) not in topic.partitions:
        raise Refused(404, f"{topic.name} has no partition {number[:20]}")
    return TopicPartition(topic.name, int(number))


def broker_of(service: Service) -> BrokerContext:
    """Raises `Refused` where this node is none."""
    if service.sources.broker is None:
        raise Refused(503, "this node is no broker: ask another")
    return service.sources.broker.context


def client_of(service: Service, asked: Asked) -> Client:
    """Raises `Refused` where this node is no broker."""
    return Client(broker_of(service), asked.visitor, service.pauses)


# ---- the table ---------------------------------------------------------------------------------------

BASE: Final = "/api/v1"
LIVE: Final = f"{BASE}/live"
"""A stream of server-sent events (live.py): `cluster` once a second, `events` when something happens."""
PARTITION_MESSAGES: Final = f"{BASE}/topics/{{topic}}/partitions/{{partition}}/messages"

ROUTES: Final = (
    Route(
        f"{BASE}/cluster",
        "Brokers, quorum, partitions with their replicas, groups: those with a problem first.",
        _cluster,
        {"topic": "partitions of this topic only"},
    ),
    Route(
        f"{BASE}/events",
        "Elections, ISR changes, fences, topics, as this node has seen them.",
        _events,
        {"since": "the number of the last event that is known"},
    ),
    Route(
        f"{BASE}/topics",
        "All topics, by name, with what their leaders' logs take.",
        _topics,
        {"containing": "those with this in their name", "limit": "how many; `more` says how many more"},
    ),
    Route(f"{BASE}/topics/{{topic}}", "A topic: its configs, size and partitions.", _topic),
    Route(
        PARTITION_MESSAGES,
        "Records of a partition; the newest where neither offset nor time is given.",
        _messages,
        {
            "offset": "the first one",
            "time_ms": "the first one at or after this time",
            "limit": f"how many, {MAX_MESSAGES} at most",
        },
    ),
    Route(f"{BASE}/groups", "All groups, with members, offsets and lag.", _groups),
    Route(f"{BASE}/groups/{{group}}", "A group.", _group),
    Route(
        f"{BASE}/transactions",
        "Transactions that are open, or whose markers are not written; those that hang first.",
        _transactions,
    ),
    Route(f"{BASE}/quotas", "What users, client ids and addresses may use.", _quotas),
    Route(f"{BASE}/users", "Users of SCRAM, and by which mechanisms they log in.", _users),
    Route(f"{BASE}/acls", "Access control entries, and whether an authorizer looks at them.", _acls),
    Route(f"{BASE}/clients", "Clients that push their metrics to this node (KIP-714), and these.", _clients),
)
