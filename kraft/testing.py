"""A real cluster for your own tests: nodes as processes, on free ports, stopped when the test ends.

    with cluster(nodes=3) as kafka:
        kafka.create_topic("orders", partitions=6)
        ... any Kafka client at kafka.bootstrap ...
        kafka.kill(kafka.leader("orders"))

The pytest fixtures in pytest_plugin.py hand out the same `Cluster`. Its calls block, and may be made from
coroutines too. The nodes end with this process, whatever ends it.

Links between nodes that can be cut come from a package above kraft (chaos/, with Toxiproxy), which names its
class in the entry point `links` of the group `kraft.testing`.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kraft import own_packages
from kraft.local.free_ports import HOST, free_ports
from kraft.local.local_cluster import LocalCluster
from kraft.local.processes import POLL_S
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, ExitCode, FatalError

if TYPE_CHECKING:
    from kraft.wire.bridge import Message

__all__ = ["CLIENT", "Cluster", "cluster"]

CLIENT: Final = "c0"
"""In a partition of a cluster with links: the clients that use its `bootstrap`."""
ENTRY_POINTS: Final = "kraft.testing"
LINKS: Final = "links"
TIMEOUT_S: Final = 30.0
PORT_TRIES: Final = 5
"""Between finding a port free and binding it another process may take it."""

Result = TypeVar("Result")
End = int | str


class ClusterLinks(Protocol):
    """Part of chaos/live/links.py, which also has slow links, one-way cuts and resets."""

    def partition(self, groups: list[Collection[End]]) -> None:
        """Cut every link between the groups, in both directions."""

    def heal_all(self) -> None:
        """Remove all faults."""


class LinkedCluster(Protocol):
    """A local cluster behind links."""

    @property
    def local(self) -> LocalCluster:
        """The nodes."""

    @property
    def links(self) -> ClusterLinks:
        """Between the nodes, and before `bootstrap`."""

    def bootstrap(self, client: int | None = None) -> str:
        """HOST:PORT,... for a client, through the links."""

    def start(self) -> None:
        """Links and nodes."""

    def close(self) -> None:
        """End all of it."""


@contextmanager
def cluster(
    nodes: int = 3,
    *,
    settings: Mapping[str, object] | None = None,
    links: bool = False,
    directory: Path | None = None,
) -> Iterator[Cluster]:
    """Combined nodes (broker and controller), registered and unfenced, until the block ends.

    `settings`: keys of server.properties, for every node. `links`: put Toxiproxy between the nodes and
    before `bootstrap`, so that they can be partitioned. `directory`: keep logs and data there; else they
    are removed with the cluster. Raises FatalError where the nodes do not start, ShadowedPackage where a file
    of the application has the name of a package that the links need.
    """
    texts = {key: _text(value) for key, value in (settings or {}).items()}
    if directory is not None:
        with _started(directory, nodes, texts, links) as running:
            yield running
        return
    with (
        tempfile.TemporaryDirectory(prefix="kraft-") as scratch,
        _started(Path(scratch), nodes, texts, links) as running,
    ):
        yield running


@contextmanager
def _started(directory: Path, nodes: int, settings: Mapping[str, str], links: bool) -> Iterator[Cluster]:
    for attempt in range(1, PORT_TRIES + 1):
        made = _make(directory, nodes, settings, links)
        try:
            try:
                _outside_the_loop(made.start)
            except FatalError as error:
                if error.exit_code is not ExitCode.PORT_IN_USE or attempt == PORT_TRIES:
                    raise
                continue
            yield Cluster(made)
            return
        finally:
            made.local.close(patience_s=0)  # no one reads what a controlled shutdown would write
            made.close()


class _UnlinkedCluster:
    """A local cluster as those with links are used."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.start = local.start
        self.close = local.close

    @property
    def links(self) -> ClusterLinks:
        raise RuntimeError("this cluster has no links that could be cut; ask for them with links=True")

    def bootstrap(self, client: int | None = None) -> str:
        return self.local.bootstrap


def _make(directory: Path, nodes: int, settings: Mapping[str, str], links: bool) -> LinkedCluster:
    if not links:
        ports = free_ports(3 * nodes, random.SystemRandom())
        return _UnlinkedCluster(LocalCluster.create(directory, nodes=nodes, ports=ports, settings=settings))
    for entry in entry_points(group=ENTRY_POINTS, name=LINKS):
        own_packages.require(entry.module.partition(".")[0])
        made: LinkedCluster = entry.load().create(directory, nodes=nodes, clients=1, settings=settings)
        return made
    raise FatalError(ExitCode.MISSING_TOOL, "links need what comes with: pip install 'kraft[chaos]'")


class Cluster:
    """Running nodes, by their ids 1, 2, …"""

    def __init__(self, made: LinkedCluster) -> None:
        self._made = made
        self._local = made.local

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,... for bootstrap.servers."""
        return self._made.bootstrap(0)

    @property
    def nodes(self) -> tuple[int, ...]:
        """All ids, of those that are down too."""
        return tuple(self._local.nodes)

    @property
    def directory(self) -> Path:
        """Where each node keeps its node.log and its data."""
        return self._local.directory

    # -- what clients see ------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Returns when every running node has its leaders. -1: a replica on each node, at most three. Raises
        BrokerError where the topic is refused."""
        configs = [{"name": key, "value": _text(value)} for key, value in (config or {}).items()]
        topic = {
            "name": name, "num_partitions": partitions, "replication_factor": replication_factor,
            "assignments": [], "configs": configs,
        }  # fmt: skip
        fields = {"topics": [topic], "timeout_ms": int(TIMEOUT_S * 1000), "validate_only": False}
        (answer,) = self._ask(self._running()[0], ApiKey.CREATE_TOPICS, (5, 7), fields).topics
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(answer.error_code), answer.error_message or name)
        for node_id in self._running():
            self._await(partial(self._leaders, node_id, name), f"node {node_id} knows {name}")

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition; waits for an election. Raises IndexError where there is no such
        partition, TimeoutError where none is elected in time."""
        leaders = self._await(
            lambda: self._leaders(self._running()[0], topic), f"partition {partition} of {topic} has a leader"
        )
        return leaders[partition]

    # -- faults ----------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """SIGKILL: a crash."""
        self._local.kill(node)

    def stop(self, node: int) -> None:
        """SIGTERM: it hands its leaders over and ends."""
        self._local.stop(node)

    def start(self, node: int) -> None:
        """Start one that is down, on its own data; returns when the others list it as alive."""
        self._local.start_node(node, wait=False)
        _outside_the_loop(self._local.wait_ready)

    def restart(self, node: int) -> None:
        """Stop it in order and start it."""
        self.stop(node)
        self.start(node)

    def pause(self, node: int) -> None:
        """SIGSTOP: it is silent, its connections stay open."""
        self._local.pause(node)

    def resume(self, node: int) -> None:
        """SIGCONT."""
        self._local.resume(node)

    @property
    def links(self) -> Any:
        """All faults of links (chaos.live.links.Links): `links.slow(1, 2, latency_ms=200)`."""
        return self._made.links

    def partition(self, *groups: Collection[End]) -> None:
        """Cut every link between groups of nodes, as `partition([1], [2, 3, CLIENT])`; a node in no group
        keeps all its links. Connections stay open, nothing arrives."""
        self._made.links.partition(list(groups))

    def isolate(self, node: int) -> None:
        """Cut it off from all other nodes and from the clients."""
        self.partition([node], [*(other for other in self.nodes if other != node), CLIENT])

    def heal(self) -> None:
        """Remove all faults of links."""
        self._made.links.heal_all()

    # -- requests --------------------------------------------------------------------------------

    def _running(self) -> list[int]:
        return [node.id for node in self._local.nodes.values() if node.process() is not None]

    def _leaders(self, node_id: int, topic: str) -> list[int]:
        """Of every partition; empty where one has no leader, or the node does not have the topic."""
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (response,) = self._ask(node_id, ApiKey.METADATA, (9, 12), fields).topics
        partitions = sorted(response.partitions, key=lambda each: int(each.partition_index))
        leaders = [int(each.leader_id) for each in partitions]
        return [] if min(leaders, default=-1) < 0 else leaders

    def _ask(
        self, node_id: int, api_key: ApiKey, versions: tuple[int, int], fields: dict[str, Any]
    ) -> Message:
        # The codec takes a while to import: nodes start meanwhile.
        from kraft.peers.blocking_client import ask

        port = self._local.node(node_id).client_port
        return _outside_the_loop(lambda: ask(HOST, port, api_key, versions, fields))

    @staticmethod
    def _await(question: Callable[[], Result], what: str) -> Result:
        deadline = time.monotonic() + TIMEOUT_S
        while not (answer := question()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {TIMEOUT_S:g} s in vain: {what}")
            time.sleep(POLL_S)
        return answer


def _outside_the_loop(work: Callable[[], Result]) -> Result:
    """Call what needs an event loop of its own: in another thread if this one runs one (for a
    test that is a coroutine)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, "kraft-testing") as aside:
        return aside.submit(work).result()


def _text(value: object) -> str:
    """As server.properties has it: true and false in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)
