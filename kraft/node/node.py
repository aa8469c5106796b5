"""One node: all that its process runs, built in order, started and stopped in order.

    controller role   Raft voter -> state machine -> controller
    broker role       metadata -> publisher -> replicas, fetchers, coordinators; lifecycle with the quorum
    both              listeners -> dispatcher -> handlers, which get a context (api/context.py)

A combined node hands the image from the state machine to the publisher directly; a node that is only a
broker follows the metadata log (broker/metadata_follower.py).

The event loop (time, network), the disk and the random source come from outside (environment.py):
serve.py makes the real ones, a simulator its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from socket import gaierror

from kraft.api.authz.authorizer import AuthorizerUpdates, authorizer_of
from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.dispatch import Dispatcher
from kraft.api.long_work import LongWork
from kraft.api.request_context import Role
from kraft.api.table import ROWS
from kraft.api.telemetry import LISTED_WHERE_RECEIVED
from kraft.api.throttling import QuotaUpdates, charge_connection
from kraft.broker.metadata_follower import MetadataFollower
from kraft.broker.scram_users import ScramUsers
from kraft.config.dynamic_config import DynamicBrokerConfig
from kraft.config.node_config import Config
from kraft.http.listener import HttpPort
from kraft.http.server import make_server
from kraft.metrics.process import ProcessStats
from kraft.metrics.sources import Broker, Controller, Rates, Sources
from kraft.monitoring.cluster_events import ClusterEvents
from kraft.monitoring.event_log import EventLog
from kraft.monitoring.request_metrics import RequestMetrics
from kraft.net.client import Address
from kraft.net.connection_quotas import ListenerKind
from kraft.net.peer import Peer
from kraft.net.server import Server
from kraft.net.server_memory import ServerMemory
from kraft.node import settings
from kraft.node.broker_role import BrokerRole
from kraft.node.certificate_ends import CertificateWatch
from kraft.node.controller_role import ControllerRole
from kraft.node.environment import NodeEnvironment
from kraft.node.listener_security import CertificateRenewal, NodeSecurity
from kraft.peers.controller_channel import ControllerChannel
from kraft.storage.bootstrap import read_users
from kraft.storage.formatter import Storage
from metadata_quorum.foundation.blocking import NOT_SERVING, MayBlock, Result
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import Endpoint
from metadata_quorum.foundation.supervision import report_fault
from metadata_quorum.metadata.records import UserScramCredentialRecord


class Node:
    """See the module."""

    def __init__(
        self,
        config: Config,
        storage: Storage,
        environment: NodeEnvironment,
    ) -> None:
        self.config = config
        self.loop = loop = environment.loop
        self.security = NodeSecurity(config)
        self.renewal = CertificateRenewal(
            loop, lambda config: self.blocking(lambda _: self.security.renew(config))
        )
        self.certificate_watch = CertificateWatch(loop, environment.now_ms, self.security.certificate_ends)
        users = read_users(environment.disk, config) if config.is_controller else ()
        self.controller_channel = ControllerChannel(
            loop,
            {each.node_id: Address(each.host, each.port) for each in config.quorum_entries},
            environment.random,
            client_id=f"node-{config.node_id}",
            request_timeout_s=config.request_timeout_ms * settings.MS,
            attempt_timeout_s=config.controller_quorum_request_timeout_ms * settings.MS,
            retry_backoff_s=config.controller_quorum_retry_backoff_ms * settings.MS,
            security=self.security.to_controllers,
        )
        self.context = NodeContext(
            node_id=config.node_id,
            cluster_id=storage.cluster_id,
            config=config,
            loop=loop,
            long_work=LongWork(loop),
            random=environment.random,
            now_ms=environment.now_ms,
            stopwatch=environment.stopwatch,
            controller_channel=self.controller_channel,
            logins=self.security.logins,
            certificate_ends=self.security.certificate_ends,
            scram_users=ScramUsers(users),
            authorizer=authorizer_of(config),
            blocking_threads=environment.blocking_threads,
            faults=environment.boundary.faults,
            requests=RequestMetrics({row.key: row.name for row in ROWS.values()}, environment.stopwatch),
        )
        self._make_roles(environment, storage, users)
        self._make_listeners(environment)
        self._subscribe()

    def _make_roles(
        self,
        environment: NodeEnvironment,
        storage: Storage,
        bootstrap_users: Sequence[UserScramCredentialRecord],
    ) -> None:
        node, config, security = self.context, self.config, self.security
        self.controller_role: ControllerRole | None = None
        self.broker_role: BrokerRole | None = None
        self.follower: MetadataFollower | None = None
        if config.is_controller:
            self.controller_role = ControllerRole(
                node, environment, self.blocking, security.to_controllers, bootstrap_users
            )
        else:
            self.follower = MetadataFollower(
                self.loop, config.node_id, self.controller_channel, environment.stopwatch
            )
        if config.is_broker:
            self.broker_role = BrokerRole(node, environment, self.blocking, security.to_brokers, storage)

    def _make_listeners(self, environment: NodeEnvironment) -> None:
        """Wire the sockets to the handlers, and HTTP."""
        config, node = self.config, self.context
        limits = settings.server_limits(config, config)
        memory = limits.memory()
        broker, controller = None, None
        if self.broker_role is not None:
            broker = self.broker_role.context(node, memory.unread.piece_bytes)
        if self.controller_role is not None:
            controller = self.controller_role.context(node, self._broker_heard)
        roles = {e.name: Role.BROKER for e in config.broker_listeners}
        roles |= {e.name: Role.CONTROLLER for e in config.controller_listeners}
        also = LISTED_WHERE_RECEIVED if config.kraft_client_telemetry_enable else ()
        self.dispatcher = Dispatcher(node, ROWS, roles, broker=broker, controller=controller, also=also)
        self.server = Server(
            self.loop,
            self.dispatcher.serve,
            self.dispatcher.is_exclusive,
            self.dispatcher.is_in_turn,
            limits=limits,
            memory=memory,
            on_closed=self._connection_closed,
            on_overtaken=self._fetch_overtaken,
            admit=partial(charge_connection, node),
            prepare=self.dispatcher.prepare,
            stopwatch=environment.stopwatch,
            cpu_time=environment.cpu_time,
            requests=node.requests,
        )
        self.events = ClusterEvents()
        self.http = HttpPort(self.loop, partial(make_server, self._sources(broker, controller, memory)))

    def _sources(
        self, broker: BrokerContext | None, controller: ControllerContext | None, memory: ServerMemory
    ) -> Sources:
        """What HTTP clients may see."""
        rates = Rates(self.loop.time)
        return Sources(
            node=self.context,
            connections=self.server.connections,
            memory=memory,
            events=self.events,
            process=ProcessStats(self.context.now_ms),
            broker=None if broker is None else Broker(broker, rates),
            controller=None if controller is None else Controller(controller, rates, self.events),
            rates=rates,
        )

    def _subscribe(self) -> None:
        """Follow the metadata: on a controller as it is committed, on any other node as it is fetched."""
        node, broker = self.context, self.broker_role
        if self.controller_role is not None:
            listen = self.controller_role.state_machine.subscribe
        else:
            assert self.follower is not None
            listen = self.follower.subscribe
        listen(node.committed_metadata.take)
        listen(self.events.take)
        listen(node.scram_users.take)
        rights = AuthorizerUpdates(node)
        listen(rights.take, rights.prepare)
        if broker is not None:
            listen(broker.replication_quotas.take)
            listen(broker.publisher.publish)
        else:
            listen(node.metadata_cache.take)
        quotas = QuotaUpdates(node, settings.client_quotas(self.config))
        listen(quotas.take, quotas.prepare)
        listen(DynamicBrokerConfig(self.config, self._reconfigure).take)

    def _reconfigure(self, config: Config) -> None:
        """Apply what has changed in the configuration."""
        self.server.connections.limits = settings.server_limits(config, self.config)
        if self.security.uses_tls:
            self.renewal.begin(config)
        broker = self.broker_role
        if broker is not None:
            broker.replica_manager.configure(settings.replica_manager_config(config))
            broker.fetcher_manager.resize(config.num_replica_fetchers)
            broker.transaction_verifier.verifies = config.transaction_partition_verification_enable

    async def blocking(self, work: Callable[[MayBlock], Result], /) -> Result:
        """Run what blocks outside the loop."""
        return await self.context.blocking(work)

    # --- start and stop -----------------------------------------------------------------------

    async def start(self, on_loaded: Callable[[], None] = lambda: None) -> None:
        """Returns when the listeners are open and, on a broker, the quorum has unfenced it. `on_loaded` is
        called when the logs are open, which may take minutes after a crash. Raises `FatalError` where it
        cannot listen or cannot open its logs."""
        self.certificate_watch.start()
        await self._open(on_loaded)
        event_log = EventLog(self.events, self.config.node_id, self._is_active_controller)
        self.events.listeners[event_log] = None

    async def _open(self, on_loaded: Callable[[], None]) -> None:
        for endpoint in self.config.bound_listeners:
            await _check_port(self.loop, endpoint.host, endpoint.port)
        if self.config.kraft_http_port is not None:
            await _check_port(self.loop, self.config.kraft_http_host, self.config.kraft_http_port)
            await self.http.listen(self.config.kraft_http_host, self.config.kraft_http_port)
        if self.broker_role is not None:
            self.broker_role.load(NOT_SERVING)
        on_loaded()
        for endpoint in self.config.controller_listeners:
            await self._listen(endpoint, ListenerKind.CONTROLLERS)
        if self.controller_role is not None:
            self.controller_role.start()
        self.controller_channel.start()
        if self.follower is not None:
            self.follower.start()
        broker = self.broker_role
        if broker is None:
            return
        broker.start()
        await broker.publisher.started.wait()
        # Only now: before, every topic would look unknown to a client.
        listeners = self.config.broker_listeners
        for endpoint in listeners:
            between_brokers = endpoint.name == self.config.inter_broker_listener and len(listeners) > 1
            await self._listen(endpoint, ListenerKind.BROKERS if between_brokers else ListenerKind.SHARED)
        await broker.lifecycle.running.wait()

    async def _listen(self, endpoint: Endpoint, listener_kind: ListenerKind) -> None:
        security = replace(self.security.listeners[endpoint.name], listener_kind=listener_kind)
        await self.server.listen(endpoint.name, endpoint.host or None, endpoint.port, security)

    async def stop(self) -> None:
        """Controlled shutdown, then everything in the order in which data flows. A part that fails at it does
        not keep the others from it: the logs are closed, and marked as clean, after the listeners."""
        ends: list[Callable[[], Awaitable[None]]] = [
            self.certificate_watch.close,
            self.http.close,
            self.server.close,
            self.dispatcher.close,
        ]
        if self.broker_role is not None:
            ends = [self.broker_role.leave, *ends, self.broker_role.stop]
        if self.follower is not None:
            ends.append(self.follower.close)
        ends.append(self.controller_channel.close)
        if self.controller_role is not None:
            ends.append(self.controller_role.stop)
        for end in ends:
            try:
                await end()
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are to end
                report_fault(self.loop, "a part of the node's end", error)

    def _fetch_overtaken(self, peer: Peer) -> None:
        if self.broker_role is not None:
            self.broker_role.fetch_service.sessions.overtaken(peer.state.fetch_session_id)

    def _connection_closed(self, peer: Peer, broken: bool) -> None:
        session_id = peer.state.fetch_session_id
        if session_id is not None and self.broker_role is not None:
            self.broker_role.fetch_service.sessions.drop(session_id)
        link = peer.state.heartbeats_of
        if self.controller_role is None or link is None:
            return
        controller = self.controller_role.controller
        if not broken:
            controller.connection_closed(link)
        elif controller.connection_broken(link):
            self.controller_role.liveness_probe.probe(link.broker_id)
            if self.broker_role is not None:
                self.broker_role.failover_metadata.broker_lost(link.broker_id)

    def _is_active_controller(self) -> bool:
        return self.controller_role is not None and self.controller_role.controller.is_active

    def _broker_heard(self, broker_id: int) -> None:
        if self.broker_role is not None:
            self.broker_role.failover_metadata.broker_back(broker_id)


async def _check_port(loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
    """Raises `FatalError` at once where a port is in use, not only when the broker begins to serve."""
    try:
        bound = await loop.create_server(asyncio.Protocol, host or None, port, start_serving=False)
    except OSError as error:
        why = (
            error.strerror if isinstance(error, gaierror) or error.errno is None else os.strerror(error.errno)
        )
        reason = f"cannot listen on {host or '*'}:{port}: {why}"
        raise FatalError(ExitCode.PORT_IN_USE, reason) from None
    bound.close()
