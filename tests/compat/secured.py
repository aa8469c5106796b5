"""Clusters behind TLS and logins, as a client with credentials sees them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kraft.api.request_context import Role
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.net.client import Address, PeerClient
from kraft.net.connection_security import ConnectionSecurity, Login, dial
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message as WireMessage
from tests.support.nodes.cluster import FEW_COORDINATORS, ended_at_once
from tests.support.waiting import PATIENCE_S, wait_until


@contextlib.contextmanager
def secured(
    directory: Path,
    ports: list[int],
    settings: Mapping[str, str],
    client: Mapping[str, Any],
    *,
    users: Sequence[str] = (),
) -> Iterator[LocalCluster]:
    """Up as `client` sees it. `users`: as the format command takes them."""
    cluster = LocalCluster.create(
        directory, nodes=len(ports) // 3, ports=ports, settings={**FEW_COORDINATORS, **settings}, users=users
    )
    with ended_at_once(cluster):
        for node_id in cluster.nodes:
            cluster.start_node(node_id, wait=False)
        wait_until(lambda: len(brokers(cluster, client)) == len(cluster.nodes), "all brokers are known")
        yield cluster


def brokers(cluster: LocalCluster, client: Mapping[str, Any]) -> set[int]:
    """Those that it hears of; none where it is not let in."""
    with contextlib.suppress(KafkaException):
        return set(
            AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **client})
            .list_topics(timeout=2)
            .brokers
        )
    return set()


def refusals(cluster: LocalCluster, client: Mapping[str, Any]) -> set[int]:
    """The errors that a client hears of before it knows any broker, but for what tells of nobody there."""
    heard: set[int] = set()
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "log_level": 0,
        "error_cb": lambda e: heard.add(e.code()),
    }
    admin = AdminClient(settings | client)

    def refused() -> bool:
        admin.poll(0.1)
        return bool(heard - {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})

    wait_until(refused, "the client is refused")
    return heard


class Asking:
    """Our own client, logged in, at both listeners of the node."""

    def __init__(self, cluster: LocalCluster, user: str) -> None:
        self._loop = asyncio.new_event_loop()
        way = ConnectionSecurity(login=Login("PLAIN", user, f"of {user}"))
        node = cluster.nodes[1]

        def connected(port: int) -> PeerClient:
            return self._loop.run_until_complete(
                dial(self._loop, Address(HOST, port), "test", way, timeout_s=PATIENCE_S)
            )

        self._clients = {
            Role.BROKER: connected(node.client_port),
            Role.CONTROLLER: connected(node.controller_port),
        }

    def __call__(self, role: Role, key: int, version: int, fields: dict[str, Any]) -> WireMessage:
        return self._loop.run_until_complete(
            self._clients[role].request(key, version, fields, timeout_s=PATIENCE_S)
        )

    def exchange(self, api_key: ApiKey) -> None:
        self._loop.run_until_complete(
            self._clients[Role.BROKER].exchange(api_key, 0, (b"",), timeout_s=PATIENCE_S)
        )

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
