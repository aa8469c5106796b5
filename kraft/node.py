"""One node: everything a process is made of, built in order, started and stopped in order.

    controller role   Raft voter -> state machine -> controller        (its links, its journal)
    broker role       metadata -> publisher -> partitions, fetchers, groups; lifecycle with the quorum
    both              listeners -> dispatcher -> handlers, which see a `NodeContext`

A combined node hands the image from the state machine to the publisher directly; a node that is only a
broker follows the metadata log (metadata_follower.py).

Three things come from outside: the event loop (time, network), a `Disk`, a `random.Random`. `run` makes the
real ones; a simulator makes its own.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from uuid import UUID

from data_plane.coordinator.groups.service import OFFSETS_TOPIC, GroupService
from data_plane.log_dirs import LogDir
from data_plane.partitions import Partitions
from data_plane.timing_wheel import WheelTimer
from fetch.delayed_fetch import FetchService
from fetch.fetcher import FetcherContext
from fetch.fetchers import Fetchers
from fetch.sessions import SessionCache
from kraft import settings
from kraft.api.brokers import HEARTBEAT_BROKER
from kraft.api.dispatch import Dispatcher
from kraft.api.fetch import FETCH_SESSION
from kraft.api.metadata_fetch import MetadataReader
from kraft.api.table import ROWS
from kraft.api.versions import SUPPORTED_FEATURES
from kraft.broker_lifecycle import BrokerIdentity, BrokerLifecycle
from kraft.config import Config
from kraft.console.door import HOST as HTTP_HOST
from kraft.console.door import HttpPort
from kraft.console.status import make_server
from kraft.context import NodeContext, Role
from kraft.controller_client import ControllerLinks
from kraft.departures import Departures
from kraft.internal_topic import InternalTopic
from kraft.isr_channel import BrokerIsrChannel
from kraft.last_call import LastCalls
from kraft.metadata_follower import MetadataFollower
from kraft.net.client import Address
from kraft.net.server import Peer, Server
from kraft.peers import SocketLeader
from kraft.producer_ids import ProducerIds
from kraft.publisher import Publisher
from kraft.raft_driver import RaftDriver
from kraft.raft_links import RaftLinks
from kraft.storage import Storage, boot_id, lock_storage, random_uuid, read_storage
from metadata_quorum.controller import Controller
from metadata_quorum.disk import Disk, OsDisk
from metadata_quorum.errors import BrokerError, ErrorCode, ExitCode, FatalError
from metadata_quorum.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.invariants import InvariantViolation
from metadata_quorum.metadata_log import MetadataLog
from metadata_quorum.model import FeatureRange
from metadata_quorum.raft.voter import SyncObjRaft
from metadata_quorum.state_machine import MetadataStateMachine

log = logging.getLogger(__name__)

ALLOCATE_PRODUCER_IDS: Final = 67
ALLOCATE_PRODUCER_IDS_VERSION: Final = 0

EXECUTOR_THREADS: Final = 4
GC_THRESHOLDS: Final = (50_000, 50, 100)
"""Collections are a pause; what a request leaves behind is freed by counting references."""


class ControllerRole:
    """The quorum's part of a node."""

    def __init__(self, node: Node) -> None:
        config, context = node.config, node.context
        self.metadata_log = MetadataLog(
            node.disk,
            f"{config.metadata_dir}/__cluster_metadata-0",
            segment_bytes=config.metadata_log_segment_bytes,
        )
        self.state_machine = MetadataStateMachine(self.metadata_log, node.fatal)
        self.links = RaftLinks(
            cluster_id=context.cluster_id,
            node_id=config.node_id,
            addresses={v.node_id: (v.host, v.port) for v in config.voters},
            random=node.random,
        )
        voter = SyncObjRaft(
            config.node_id,
            [v.node_id for v in config.voters],
            context.cluster_id,
            node.disk,
            config.raft_dir,
            self.links,
            self.state_machine,
            node.loop.time,
            node.random,
            settings.raft_settings(config),
        )
        self.raft = RaftDriver(voter, node.loop, node.fatal)
        self.controller = Controller(
            config.node_id,
            self.raft,
            self.state_machine,
            settings.controller_settings(config, context.cluster_id),
            loop=node.loop,
            random=node.random,
            now_ms=node.now_ms,
        )
        self.last_calls = LastCalls(
            node.loop,
            lambda broker_id: _address(config, self.controller.image, broker_id),
            self.controller.process_gone,
            config.kraft_controller_link_grace_ms * settings.MS,
        )
        self.reader = MetadataReader(self.metadata_log, node.loop, node.now_ms)
        self.state_machine.subscribe(lambda delta, image: self.reader.committed())

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.links.start(loop, self.raft)
        self.raft.wake()

    async def stop(self) -> None:
        self.controller.close()
        await self.last_calls.close()
        self.raft.close()
        await self.links.close()
        self.metadata_log.close()


class BrokerRole:
    """The data plane's part of a node."""

    def __init__(self, node: Node, log_dirs: dict[str, UUID]) -> None:
        config, context, loop = node.config, node.context, node.loop
        self._node = node
        self.timer = WheelTimer(loop)
        identity = self._identity(log_dirs)
        self.lifecycle = BrokerLifecycle(
            loop,
            node.controller_links,
            identity,
            lambda: self.publisher.published_offset,
            lambda: self.partitions.whole_epoch,
            heartbeat_interval_s=config.broker_heartbeat_interval_ms * settings.MS,
            session_timeout_s=config.broker_session_timeout_ms * settings.MS,
        )
        self.partitions = Partitions(
            settings.partitions_settings(config),
            [LogDir(node.disk, path, uuid, node.boot_id) for path, uuid in log_dirs.items()],
            BrokerIsrChannel(config.node_id, self.lifecycle, node.controller_links),
            loop=loop,
            timer=self.timer,
            rng=node.random,
            now_ms=node.now_ms,
            blocking=node.blocking,
            on_log_dir_failed=self._log_dir_failed,
        )
        self.fetches = FetchService(
            self.partitions,
            SessionCache(config.max_incremental_fetch_session_cache_slots, node.random),
            self.timer,
            loop,
            max_response_bytes=config.fetch_max_bytes,
        )
        self.fetchers = Fetchers(
            FetcherContext(
                config.node_id,
                lambda: self.lifecycle.broker_epoch,
                node.now_ms,
                loop,
                self.timer,
                node.random,
                settings.fetch_limits(config),
                retry_last=config.replica_fetch_backoff_ms * settings.MS,
            ),
            self._leader,
            fetchers_per_leader=config.num_replica_fetchers,
        )
        self.groups = GroupService(
            settings.group_settings(config),
            InternalTopic(OFFSETS_TOPIC, self.partitions, loop, node.now_ms),
            loop,
            node.random,
            node.now_ms,
        )
        self.departures = Departures(loop)
        self.publisher = Publisher(
            context,
            self.partitions,
            self.fetchers,
            self.groups,
            self.departures,
            incarnation_id=identity.incarnation_id,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            on_published=self.lifecycle.metadata_published,
            on_fatal=node.fatal,
        )
        self.lifecycle.on_registered = self._registered

    def _registered(self, broker_epoch: int) -> None:
        self.partitions.registered(broker_epoch)
        self.publisher.begin()

    def load(self) -> None:
        """Open the logs on disk; blocks."""
        self.partitions.load()

    def start(self) -> None:
        self.partitions.start()
        self.lifecycle.start()

    async def leave(self) -> None:
        """Controlled shutdown: the quorum moves our leaders while we still serve."""
        await self.lifecycle.stop()

    async def stop(self) -> None:
        self.publisher.close()
        self.groups.close()
        await self.fetchers.close()
        await self.partitions.close(self.lifecycle.broker_epoch)
        self.timer.close()

    def _identity(self, log_dirs: dict[str, UUID]) -> BrokerIdentity:
        config = self._node.config
        return BrokerIdentity(
            config.node_id,
            self._node.context.cluster_id,
            random_uuid(self._node.random),
            config.advertised_endpoints,
            tuple(FeatureRange(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()),
            config.broker_rack,
            tuple(log_dirs.values()),
        )

    def _leader(self, leader_id: int, fetcher_id: int) -> SocketLeader:
        config, context = self._node.config, self._node.context

        return SocketLeader(
            self._node.loop,
            config.node_id,
            lambda: _address(config, context.image, leader_id),
            client_id=f"broker-{config.node_id}-fetcher-{fetcher_id}",
            timeout_s=config.replica_socket_timeout_ms * settings.MS,
            on_lost=lambda: self.departures.lost(leader_id),
        )

    def _log_dir_failed(self, directory: LogDir, error: OSError) -> None:
        if all(not each.online for each in self.partitions.log_dirs):
            reason = f"every log directory has failed; the last was {directory.path}: {error.strerror}"
            self._node.fatal(FatalError(ExitCode.DISK_FAILED, reason))
        else:
            self.lifecycle.log_dir_failed(directory.directory_id)


class Node:
    """See the module."""

    def __init__(
        self,
        config: Config,
        storage: Storage,
        *,
        loop: asyncio.AbstractEventLoop,
        disk: Disk,
        random: random.Random,
        now_ms: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
        boot_id: str = "",
    ) -> None:
        """`boot_id`: the machine's present boot; a node that is killed under it has lost nothing."""
        self.config = config
        self.loop = loop
        self.disk = disk
        self.random = random
        self.now_ms = now_ms
        self.fatal = on_fatal
        self.boot_id = boot_id
        self.context = NodeContext(
            config.node_id, storage.cluster_id, config, loop, random, now_ms, EMPTY_IMAGE, on_fatal=on_fatal
        )
        self.controller_links = ControllerLinks(
            loop,
            {v.node_id: Address(v.host, v.port) for v in config.voters},
            random,
            client_id=f"node-{config.node_id}",
            request_timeout_s=config.request_timeout_ms * settings.MS,
            attempt_timeout_s=config.controller_quorum_request_timeout_ms * settings.MS,
            retry_backoff_s=config.controller_quorum_retry_backoff_ms * settings.MS,
        )
        self.controller_role = ControllerRole(self) if config.is_controller else None
        self.broker_role = BrokerRole(self, storage.directories) if config.is_broker else None
        self.follower = (
            MetadataFollower(loop, config.node_id, self.controller_links)
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
            limits=settings.server_limits(config),
            on_closed=self._connection_closed,
        )
        self._fill_context()
        self.http = HttpPort(loop, lambda: make_server(self.context))

    def _fill_context(self) -> None:
        context, broker, quorum = self.context, self.broker_role, self.controller_role
        context.controller_client = self.controller_links
        if broker is not None:
            context.partitions = broker.partitions
            context.fetches = broker.fetches
            context.groups = broker.groups
            context.producer_ids = ProducerIds(self._allocate_producer_ids)
            context.timer = broker.timer
            context.departures = broker.departures
            context.broker_epoch = lambda: broker.lifecycle.broker_epoch
        if quorum is not None:
            context.controller = quorum.controller
            context.raft = quorum.raft
            context.metadata_reader = quorum.reader
            listen = quorum.state_machine.subscribe
        elif self.follower is not None:
            listen = self.follower.subscribe
        if broker is not None:
            listen(broker.publisher.publish)
        else:
            listen(lambda _, image: setattr(context, "image", image))

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        fields = {"broker_id": self.config.node_id, "broker_epoch": self.context.broker_epoch()}
        answer = await self.controller_links.request(
            ALLOCATE_PRODUCER_IDS, ALLOCATE_PRODUCER_IDS_VERSION, fields
        )
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(answer.error_code), "no producer ids from the controller")
        return answer.producer_id_start, answer.producer_id_len

    async def blocking(self, work: Callable[[], None]) -> None:
        """Run what blocks outside the loop."""
        await self.loop.run_in_executor(None, work)

    # --- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the listeners are open and, on a broker, the quorum has let it in."""
        for endpoint in self.config.bound_listeners:
            _check_port(endpoint.host, endpoint.port)
        if self.config.kraft_http_port is not None:
            _check_port(HTTP_HOST, self.config.kraft_http_port)
            await self.http.listen(self.config.kraft_http_port)
        if self.broker_role is not None:
            self.broker_role.load()
        for endpoint in self.config.controller_listeners:
            await self.server.listen(endpoint.name, endpoint.host or None, endpoint.port)
        if self.controller_role is not None:
            self.controller_role.start(self.loop)
        self.controller_links.start()
        if self.follower is not None:
            self.follower.start()
        broker = self.broker_role
        if broker is None:
            return
        broker.start()
        await broker.publisher.started.wait()
        # Only now: before, every topic would look unknown to a client.
        for endpoint in self.config.broker_listeners:
            await self.server.listen(endpoint.name, endpoint.host or None, endpoint.port)
        await broker.lifecycle.running.wait()

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
        await self.controller_links.close()
        if self.controller_role is not None:
            await self.controller_role.stop()

    def _connection_closed(self, peer: Peer, broken: bool) -> None:
        session_id = peer.state.get(FETCH_SESSION)
        if session_id is not None and self.broker_role is not None:
            self.broker_role.fetches.sessions.drop(session_id)
        broker_id = peer.state.get(HEARTBEAT_BROKER)
        if self.controller_role is None or broker_id is None:
            return
        controller = self.controller_role.controller
        if broken:
            controller.connection_broken(broker_id)
            self.controller_role.last_calls.call(broker_id)
            if self.broker_role is not None:
                self.broker_role.departures.lost(broker_id)
        else:
            controller.connection_closed(broker_id)


def _address(config: Config, image: MetadataImage, broker_id: int) -> Address | None:
    """Where other nodes reach a broker."""
    broker = image.brokers.get(broker_id)
    endpoint = None if broker is None else broker.endpoint(config.inter_broker_listener)
    return None if endpoint is None else Address(endpoint.host, endpoint.port)


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


# --- the process ------------------------------------------------------------------------------


def run(config: Config) -> int:
    """Run a node until a signal ends it; the process's exit code. Raises FatalError at the start."""
    disk = OsDisk()
    storage = read_storage(disk, config)
    locks = lock_storage(config)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve(config, storage, disk))
    finally:
        for fd in locks:
            os.close(fd)
    return 0


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What escaped from a task or a callback. Where the work would have gone on for as long as the node
    does (a supervised task, a timer that sets itself anew), the node must not go on without it."""
    error = context.get("exception")
    broken = isinstance(error, InvariantViolation | FatalError)
    died = "task" in context or hasattr(context.get("handle"), "when")
    if isinstance(error, BaseException) and (broken or died):
        log.critical("%s", context.get("message"))
        _die(error)
    loop.default_exception_handler(context)


async def _serve(config: Config, storage: Storage, disk: Disk) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_loop_error)
    loop.set_default_executor(ThreadPoolExecutor(EXECUTOR_THREADS, "blocking"))
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node = Node(
        config,
        storage,
        loop=loop,
        disk=disk,
        random=random.SystemRandom(),
        now_ms=lambda: time.time_ns() // 1_000_000,
        on_fatal=_die,
        boot_id=boot_id(),
    )
    await _until(stopping, node.start())
    if not stopping.is_set():
        log.info("node %d is up", config.node_id)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        await stopping.wait()
    log.info("node %d is stopping", config.node_id)
    await node.stop()


async def _until(stopping: asyncio.Event, work: Awaitable[None]) -> None:
    """Wait for `work`, but not beyond a signal."""
    tasks = (asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _die(error: BaseException) -> None:
    """End at once: after a failed disk or a broken invariant nothing may follow from what we know."""
    if isinstance(error, FatalError):
        print(f"kraft: {error.reason}", file=sys.stderr, flush=True)  # noqa: T201
        code = error.exit_code
    else:
        log.critical("the node stops", exc_info=error)
        code = ExitCode.INVARIANT_BROKEN
    logging.shutdown()
    os._exit(code)
