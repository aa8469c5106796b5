"""A real cluster for your own tests: nodes as processes, on free ports, stopped when the test ends.

    with cluster(nodes=3) as kafka:
        kafka.create_topic("orders", partitions=6)
        ... any Kafka client at kafka.bootstrap ...
        kafka.kill(kafka.leader("orders"))

The pytest fixtures in pytest_plugin.py hand out the same `Cluster`. Its calls block, and may be made from
coroutines too. The nodes end with this process, whatever ends it.

`simulated` is another kind: nodes in the test's own process and in virtual time, for asyncio code with a
pure-Python client.

Links between nodes that can be cut, and the simulator, come from a package above kraft (chaos/), which names
them in the entry points `links` and `simulated` of the group `kraft.testing`.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import partial, wraps
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from kraft import own_packages
from kraft.local.free_ports import HOST, Ports
from kraft.local.local_cluster import LocalCluster
from kraft.local.processes import POLL_S, has_stopped
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, ExitCode, FatalError

if TYPE_CHECKING:
    from kraft.wire.bridge import Message

__all__ = ["CLIENT", "Cluster", "SimulatedNodes", "cluster", "simulated"]

CLIENT: Final = "c0"
"""In a partition of a cluster with links: the clients that use its `bootstrap`."""
ENTRY_POINTS: Final = "kraft.testing"
LINKS: Final = "links"
SIMULATED: Final = "simulated"
TIMEOUT_S: Final = 30.0

P = ParamSpec("P")
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
    tls: bool = False,
    sasl: bool = False,
    directory: Path | None = None,
) -> Iterator[Cluster]:
    """Combined nodes (broker and controller), registered and unfenced, until the block ends.

    `settings`: keys of server.properties, for every node. `links`: put Toxiproxy between the nodes and
    before `bootstrap`, so that they can be partitioned. `tls`, `sasl`: all listeners have a certificate, ask
    for a login (SCRAM), or both; `client_settings` has what a client needs. `directory`: keep logs and data
    there; else they are removed with the cluster. Raises FatalError where the nodes do not start,
    ShadowedPackage where a file of the application has the name of a package that the links need.
    """
    texts = {key: _text(value) for key, value in (settings or {}).items()}
    if links and (tls or sasl):
        raise FatalError(ExitCode.USAGE, "links are for plain listeners: without tls and sasl")
    with ExitStack() as held:
        if directory is None:
            directory = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="kraft-")))
        make = _linked if links else partial(_unlinked, tls=tls, sasl=sasl)
        made = make(directory, nodes, texts, held.enter_context(Ports()))
        yield held.enter_context(_started(made))


class SimulatedNodes(Protocol):
    """A cluster in virtual time (chaos/simulator/user_cluster.py)."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """All ids, of those that are down too."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,... for bootstrap.servers."""

    @property
    def now_s(self) -> float:
        """Virtual seconds since the cluster was made."""

    @property
    def digest(self) -> int:
        """Two runs that did the same have the same."""

    def run(self, story: Coroutine[Any, Any, Result], *, seconds: float = ...) -> Result:
        """Run a coroutine to its end; its result. Raises TimeoutError after so many virtual seconds."""

    def kill(self, node: int) -> None:
        """SIGKILL: a crash."""

    def lose_power(self, node: int) -> None:
        """What was not synced is kept, lost or torn."""

    def stop(self, node: int) -> None:
        """SIGTERM; returns at once."""

    def start(self, node: int) -> None:
        """Start it on its own data; returns at once."""

    def partition(self, *groups: tuple[End, ...]) -> None:
        """Cut every link between groups of nodes; the test itself is the end "client"."""

    def heal(self) -> None:
        """Every link carries again."""


@contextmanager
def simulated(
    seed: int, *, nodes: int = 3, settings: Mapping[str, object] | None = None
) -> Iterator[SimulatedNodes]:
    """Combined nodes in this process and in virtual time, until the block ends; the seed decides all that
    happens, so it is the same each time.

    `run` takes a coroutine that uses any pure-Python asyncio client (aiokafka). librdkafka cannot be used: it
    has threads and sockets of its own. `settings`: keys of server.properties, for every node. Raises
    FatalError where `kraft[chaos]` is not installed.
    """
    for entry in entry_points(group=ENTRY_POINTS, name=SIMULATED):
        own_packages.require(entry.module.partition(".")[0])
        texts = {key: _text(value) for key, value in (settings or {}).items()}
        with entry.load()(seed, nodes, texts) as running:
            yield running
        return
    raise FatalError(ExitCode.MISSING_TOOL, "a simulation needs what comes with: pip install 'kraft[chaos]'")


@contextmanager
def _started(made: LinkedCluster) -> Iterator[Cluster]:
    try:
        _outside_the_loop(made.start)
        yield Cluster(made)
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


def _unlinked(
    directory: Path, nodes: int, settings: Mapping[str, str], ports: Ports, *, tls: bool, sasl: bool
) -> LinkedCluster:
    return _UnlinkedCluster(
        LocalCluster.create(
            directory, nodes=nodes, ports=ports(3 * nodes), settings=settings, tls=tls, sasl=sasl
        )
    )


def _linked(directory: Path, nodes: int, settings: Mapping[str, str], ports: Ports) -> LinkedCluster:
    for entry in entry_points(group=ENTRY_POINTS, name=LINKS):
        own_packages.require(entry.module.partition(".")[0])
        create = entry.load().create
        made: LinkedCluster = create(directory, nodes=nodes, clients=1, settings=settings, take_ports=ports)
        return made
    raise FatalError(
        ExitCode.MISSING_TOOL, "links need what comes with: pip install '.[chaos]' in kraft's checkout"
    )


def _short_traceback(method: Callable[P, Result]) -> Callable[P, Result]:
    """What a test did wrong, or waited for in vain, is raised without our frames and what led to it."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> Result:
        __tracebackhide__ = True
        try:
            return method(*args, **kwargs)
        except (FatalError, BrokerError, LookupError, OSError) as error:
            trouble = error
        raise trouble.with_traceback(None) from None

    return called


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

    @property
    def client_settings(self) -> dict[str, str]:
        """What a client on librdkafka needs: bootstrap.servers, and certificates and a login where there are
        some. `Consumer(kafka.client_settings | {"group.id": "test"})`."""
        secure = self._local.client_properties is not None
        return {
            "bootstrap.servers": self.bootstrap,
            **(self._local.security.librdkafka_settings() if secure else {}),
        }

    @property
    def client_properties(self) -> Path | None:
        """A file with the same for Apache Kafka's own clients; None where they need nothing."""
        return self._local.client_properties

    @_short_traceback
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
            self._await(partial(self._has_leaders, node_id, name), f"node {node_id} knows {name}")

    def create_unique_topic(self, prefix: str = "topic", **options: Any) -> str:
        """A topic that no other test has, as `create_topic` makes it; returns its name."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.create_topic(name, **options)
        return name

    @_short_traceback
    def delete_topic(self, name: str) -> None:
        """Returns when no running node has it any more. Raises BrokerError where it is refused."""
        fields = {"topic_names": [name], "timeout_ms": int(TIMEOUT_S * 1000)}
        (answer,) = self._ask(self._running()[0], ApiKey.DELETE_TOPICS, (1, 5), fields).responses
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(answer.error_code), name)
        for node_id in self._running():
            self._await(partial(self._lacks, node_id, name), f"node {node_id} forgets {name}")

    @_short_traceback
    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition; waits for an election. Raises LookupError where there is no such
        partition, TimeoutError where none is elected in time."""

        def elected() -> int:
            known = [
                leaders for node in self._running() if (leaders := self._leaders(node, topic)) is not None
            ]
            if not known:
                raise LookupError(f"there is no topic {topic}")
            if partition not in known[0]:
                raise LookupError(f"{topic} has no partition {partition}; it has {len(known[0])}")
            return max(0, known[0][partition])  # ids count from 1

        return self._await(elected, f"partition {partition} of {topic} has a leader")

    # -- faults ----------------------------------------------------------------------------------

    @_short_traceback
    def kill(self, node: int) -> None:
        """SIGKILL: a crash."""
        self._local.kill(node)

    @_short_traceback
    def stop(self, node: int) -> None:
        """SIGTERM: it hands its leaders over and ends."""
        self._local.stop(node)

    @_short_traceback
    def start(self, node: int, *, wait: bool = True) -> None:
        """Start one that is down, on its own data; returns when the others list it as alive, or at once.
        Raises FatalError where there is nothing to wait for: too few nodes run for a quorum."""
        if wait and not self._local.has_majority(started=node):
            raise FatalError(
                ExitCode.USAGE,
                f"node {node} would wait for a majority of {len(self.nodes)} nodes: start_all() starts all "
                f"that are down, start({node}, wait=False) does not wait",
            )
        self._local.start_node(node, wait=False)
        if wait:
            _outside_the_loop(self._local.wait_ready)

    @_short_traceback
    def start_all(self) -> None:
        """Start all that are down; returns when every node lists every node as alive."""
        _outside_the_loop(self._local.start_all)

    def restart(self, node: int) -> None:
        """Stop it in order and start it."""
        self.stop(node)
        self.start(node)

    @_short_traceback
    def pause(self, node: int) -> None:
        """SIGSTOP: it is silent, its connections stay open."""
        self._local.pause(node)

    @_short_traceback
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
        """The nodes that can answer."""
        running = [
            node.id
            for node in self._local.nodes.values()
            if (process := node.process()) is not None and not has_stopped(process)
        ]
        if not running:
            raise FatalError(ExitCode.USAGE, "no node runs; start_all() starts those that are down")
        return running

    def _leaders(self, node_id: int, topic: str) -> dict[int, int] | None:
        """By partition, -1 where it has none; None where the node does not have the topic."""
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (response,) = self._ask(node_id, ApiKey.METADATA, (9, 12), fields).topics
        if response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        return {int(each.partition_index): int(each.leader_id) for each in response.partitions}

    def _has_leaders(self, node_id: int, topic: str) -> bool:
        leaders = self._leaders(node_id, topic)
        return leaders is not None and min(leaders.values()) >= 0

    def _lacks(self, node_id: int, topic: str) -> bool:
        return self._leaders(node_id, topic) is None

    def _ask(
        self, node_id: int, api_key: ApiKey, versions: tuple[int, int], fields: dict[str, Any]
    ) -> Message:
        # The codec takes a while to import: nodes start meanwhile.
        from kraft.peers.blocking_client import SECURITY, ask

        port = self._local.node(node_id).client_port

        def work() -> Message:
            as_client = copy_context()
            as_client.run(SECURITY.set, self._local.security.connection())
            return as_client.run(ask, HOST, port, api_key, versions, fields)

        return _outside_the_loop(work)

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
    if not _is_in_a_loop():
        return work()
    with ThreadPoolExecutor(1, "kraft-testing") as aside:
        return aside.submit(work).result()


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _text(value: object) -> str:
    """As server.properties has it: true and false in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)
