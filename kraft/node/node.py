"""One node: everything a process is made of, built in order, started and stopped in order.

    controller role   Raft voter -> state machine -> controller        (its links, its journal)
    broker role       metadata -> publisher -> partitions, fetchers, groups; lifecycle with the quorum
    both              listeners -> dispatcher -> handlers, which see a `NodeContext`

A combined node hands the image from the state machine to the publisher directly; a node that is only a
broker follows the metadata log (broker/metadata_follower.py).

Three things come from outside: the event loop (time, network), a `Disk`, a `random.Random`. `run` makes the
real ones; a simulator makes its own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

from kraft.api.authz.authorizer import authorizer_of, follow
from kraft.api.brokers import HEARTBEAT_BROKER
from kraft.api.context import NodeContext
from kraft.api.dispatch import Dispatcher
from kraft.api.fetch import FETCH_SESSION
from kraft.api.request_context import Role
from kraft.api.table import ROWS
from kraft.api.throttling import QuotaUpdates, charge_connection
from kraft.broker.metadata_follower import MetadataFollower
from kraft.broker.scram_users import ScramUsers
from kraft.config.dynamic_config import DynamicBrokerConfig
from kraft.config.node_config import Config
from kraft.http.listener import HOST as HTTP_HOST
from kraft.http.listener import HttpPort
from kraft.http.status import make_server
from kraft.net.client import Address
from kraft.net.connection_quotas import ListenerKind
from kraft.net.server import Peer, Server
from kraft.node import settings
from kraft.node.broker_role import BrokerRole
from kraft.node.controller_role import ControllerRole
from kraft.node.environment import NodeEnvironment
from kraft.node.listener_security import NodeSecurity
from kraft.peers.controller_channel import ControllerChannel
from kraft.storage.bootstrap import read_users
from kraft.storage.formatter import Storage
from metadata_quorum.foundation.blocking import NOT_SERVING, MayBlock, Result
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import Endpoint
from metadata_quorum.foundation.supervision import supervised
from metadata_quorum.metadata.metadata_cache import MetadataCache


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
        users = read_users(environment.disk, config) if config.is_controller else ()
        self.controller_channel = ControllerChannel(
            loop,
            {v.node_id: Address(v.host, v.port) for v in config.voters},
            environment.random,
            client_id=f"node-{config.node_id}",
            request_timeout_s=config.request_timeout_ms * settings.MS,
            attempt_timeout_s=config.controller_quorum_request_timeout_ms * settings.MS,
            retry_backoff_s=config.controller_quorum_retry_backoff_ms * settings.MS,
            security=self.security.to_controllers,
        )
        self.context = NodeContext(
            config.node_id,
            storage.cluster_id,
            config,
            loop,
            environment.random,
            environment.now_ms,
            MetadataCache(),
            self.controller_channel,
            logins=self.security.logins,
            scram_users=ScramUsers(users),
            authorizer=authorizer_of(config),
            stopwatch=environment.stopwatch,
            faults=environment.boundary.faults,
        )
        self.controller_role = (
            ControllerRole(self.context, environment, self.blocking, self.security.to_controllers, users)
            if config.is_controller
            else None
        )
        self.broker_role = (
            BrokerRole(
                self.context, environment, self.blocking, self.security.to_brokers, storage.directories
            )
            if config.is_broker
            else None
        )
        self.follower = (
            MetadataFollower(loop, config.node_id, self.controller_channel)
            if self.controller_role is None and self.broker_role is not None
            else None
        )
        roles = {e.name: Role.BROKER for e in config.broker_listeners}
        roles |= {e.name: Role.CONTROLLER for e in config.controller_listeners}
        self.dispatcher = Dispatcher(self.context, ROWS, roles)
        self.server = Server(
            loop,
            self.dispatcher.serve,
            self.dispatcher.is_exclusive,
            self.dispatcher.is_in_turn,
            limits=settings.server_limits(config, config),
            on_closed=self._connection_closed,
            admit=lambda host: charge_connection(self.context, host),
        )
        self._fill_context()
        self.http = HttpPort(loop, lambda: make_server(self.context))

    def _fill_context(self) -> None:
        context, broker, quorum = self.context, self.broker_role, self.controller_role
        context.fetch_room = self.server.unread.room
        if broker is not None:
            context.replica_manager = broker.replica_manager
            context.fetches = broker.fetch_service
            context.groups = broker.group_coordinator
            context.producer_ids = broker.producer_ids
            context.transactions = broker.transaction_coordinator
            context.markers = broker.marker_writer
            context.transaction_verifier = broker.transaction_verifier
            context.timer = broker.timer
            context.failover_metadata = broker.failover_metadata
            context.broker_epoch = lambda: broker.lifecycle.broker_epoch
        if quorum is not None:
            context.controller = quorum.controller
            context.raft = quorum.raft
            context.metadata_reader = quorum.metadata_reader
            listen = quorum.state_machine.subscribe
        elif self.follower is not None:
            listen = self.follower.subscribe
        if context.scram_users is not None:
            listen(context.scram_users.take)
        listen(follow(context))
        if broker is not None:
            listen(broker.replication_quotas.take)
            listen(broker.publisher.publish)
        else:
            listen(context.metadata_cache.take)
        listen(QuotaUpdates(context, settings.client_quotas(self.config)).take)
        listen(DynamicBrokerConfig(self.config, self._reconfigure).take)

    def _reconfigure(self, config: Config) -> None:
        """Some keys have other values now."""
        self.server.limits = settings.server_limits(config, self.config)
        if any(security.tls is not None for security in self.security.listeners.values()):
            renewal = self.blocking(lambda _: self.security.renew(config))
            supervised(self.loop, renewal, "certificates")
        broker = self.broker_role
        if broker is not None:
            broker.replica_manager.configure(settings.replica_manager_config(config))
            broker.fetcher_manager.resize(config.num_replica_fetchers)
            broker.transaction_verifier.verifies = config.transaction_partition_verification_enable

    async def blocking(self, work: Callable[[MayBlock], Result], /) -> Result:
        """Run what blocks outside the loop."""
        return await self.context.blocking(work)

    # --- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the listeners are open and, on a broker, the quorum has let it in."""
        for endpoint in self.config.bound_listeners:
            _check_port(endpoint.host, endpoint.port)
        if self.config.kraft_http_port is not None:
            _check_port(HTTP_HOST, self.config.kraft_http_port)
            await self.http.listen(self.config.kraft_http_port)
        if self.broker_role is not None:
            self.broker_role.load(NOT_SERVING)
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
        """Controlled shutdown, then everything in the order in which data flows."""
        broker = self.broker_role
        if broker is not None:
            await broker.leave()
        await self.http.close()
        await self.server.close()
        await self.dispatcher.close()
        if broker is not None:
            await broker.stop()
        if self.follower is not None:
            await self.follower.close()
        await self.controller_channel.close()
        if self.controller_role is not None:
            await self.controller_role.stop()

    def _connection_closed(self, peer: Peer, broken: bool) -> None:
        session_id = peer.state.get(FETCH_SESSION)
        if session_id is not None and self.broker_role is not None:
            self.broker_role.fetch_service.sessions.drop(session_id)
        broker_id = peer.state.get(HEARTBEAT_BROKER)
        if self.controller_role is None or broker_id is None:
            return
        controller = self.controller_role.controller
        if broken:
            controller.connection_broken(broker_id)
            self.controller_role.liveness_probe.probe(broker_id)
            if self.broker_role is not None:
                self.broker_role.failover_metadata.broker_lost(broker_id)
        else:
            controller.connection_closed(broker_id)


def _check_port(host: str, port: int) -> None:
    """A port in use is told at once, not when the broker would begin to serve."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = f"cannot listen on {host or '*'}:{port}: {error.strerror}"
            raise FatalError(ExitCode.PORT_IN_USE, reason) from None
