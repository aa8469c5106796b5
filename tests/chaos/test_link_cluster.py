"""Real nodes behind links: who hears whom, and what is left when the owner is gone."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from chaos.live.cluster import ChaosCluster
from chaos.live.links import Links
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.peers.blocking_client import METADATA_VERSION, ask, describe_quorum, live_brokers
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.clients.rdkafka import QUIET
from tests.support.nodes.forks import run_kraft
from tests.support.nodes.processes import runs
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.heavy

KRAFT = (sys.executable, "-m", "kraft")
IMPATIENT = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500"}
NOT_REACHED = " answers, but does not reach the active controller"


@pytest.fixture(scope="module")
def _cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[ChaosCluster]:
    directory = tmp_path_factory.mktemp("linked")
    with ChaosCluster.create(directory, clients=2, settings=IMPATIENT, take_ports=free_ports) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def cluster(_cluster: ChaosCluster) -> Iterator[ChaosCluster]:
    yield _cluster
    _cluster.links.heal_all()
    _cluster.local.wait_ready()


def known(cluster: ChaosCluster, node: int) -> set[int]:
    """The brokers that a node believes to live."""
    return live_brokers(HOST, cluster.local.node(node).client_port, PATIENCE_S)


def active_controller(cluster: ChaosCluster) -> tuple[int, int]:
    """Who it is, and since which epoch. While one is elected there is none."""

    def found() -> tuple[int, int] | None:
        with contextlib.suppress(OSError, BrokerError):
            partition = describe_quorum(HOST, cluster.local.node(1).client_port).topics[0].partitions[0]
            if partition.leader_id > 0:
                return int(partition.leader_id), int(partition.leader_epoch)
        return None

    return wait_until(found, "a controller is active")


def with_one_controller(cluster: ChaosCluster, story: Callable[[int], None]) -> None:
    """The story is of who the controller is. On a machine that stands still for a moment another one is
    elected in its midst: then it proves nothing, and is told again."""
    while True:
        controller, epoch = active_controller(cluster)
        try:
            story(controller)
            return
        except AssertionError:
            cluster.links.heal_all()
            if active_controller(cluster) == (controller, epoch):
                raise
            cluster.local.wait_ready()


def create_topic(cluster: ChaosCluster, node: int, name: str) -> None:
    """By this very node; a stock client would ask whichever it likes."""
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    fields = {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}
    answer = ask(
        HOST, cluster.local.node(node).client_port, ApiKey.CREATE_TOPICS, (7, 7), fields, timeout_s=30.0
    )
    assert answer.topics[0].error_code == ErrorCode.NONE


def topics(cluster: ChaosCluster, node: int) -> set[str]:
    """Those that this very node knows."""
    fields = {"topics": None, "allow_auto_topic_creation": False}
    version = (METADATA_VERSION, METADATA_VERSION)
    answer = ask(HOST, cluster.local.node(node).client_port, ApiKey.METADATA, version, fields)
    return {topic.name for topic in answer.topics}


@pytest.mark.row("C1")
def test_the_controller_does_not_hear_a_broker_that_hears_the_controller(cluster: ChaosCluster) -> None:
    def story(controller: int) -> None:
        mute, other = (node for node in cluster.nodes if node != controller)
        cluster.links.cut(mute, controller)
        wait_until(lambda: mute not in known(cluster, controller), "it is not heard, and fenced")
        # It learns so from the very controller that does not hear it.
        wait_until(lambda: known(cluster, mute) == {controller, other}, "it hears of its own fence")
        cluster.links.heal(mute, controller)
        wait_until(lambda: known(cluster, controller) == set(cluster.nodes), "it is heard again")

    with_one_controller(cluster, story)


@pytest.mark.row("C1")
def test_a_broker_does_not_hear_the_controller_that_hears_it(cluster: ChaosCluster) -> None:
    numbers = count(1)

    def story(controller: int) -> None:
        topic = f"unheard-{next(numbers)}"
        deaf, other = (node for node in cluster.nodes if node != controller)
        cluster.links.cut(controller, deaf)
        create_topic(cluster, controller, topic)
        wait_until(lambda: topic in topics(cluster, other), "the other one knows")
        assert known(cluster, controller) == set(cluster.nodes), "its heartbeats arrive"
        assert topic not in topics(cluster, deaf)
        # Only when the other direction is cut as well does the controller miss it.
        cluster.links.cut(deaf, controller)
        wait_until(lambda: deaf not in known(cluster, controller), "now it is fenced")
        assert topic not in topics(cluster, deaf)
        cluster.links.heal_all()
        wait_until(lambda: topic in topics(cluster, deaf), "it catches up")

    with_one_controller(cluster, story)


@pytest.mark.row("C1")
def test_a_client_passes_its_own_links_only(cluster: ChaosCluster) -> None:
    def brokers(client: int, patience_s: float = 60) -> set[str]:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap(client), **QUIET})
        found = admin.list_topics(timeout=patience_s).brokers.values()
        return {f"{broker.host}:{broker.port}" for broker in found}

    # The addresses that it gets of the brokers are its own links.
    wait_until(lambda: brokers(0) == set(cluster.bootstrap(0).split(",")), "its own links")
    for node in cluster.nodes:
        cluster.links.cut("c0", node)
    with pytest.raises(KafkaException):
        brokers(0, patience_s=5)
    wait_until(lambda: brokers(1) == set(cluster.bootstrap(1).split(",")), "another client passes its own")
    everybody = set(cluster.nodes)
    wait_until(lambda: all(known(cluster, node) == everybody for node in everybody), "nodes know each other")


@pytest.mark.row("C1")
def test_commands_that_ask_a_broker_which_is_cut_off_say_so(cluster: ChaosCluster) -> None:
    """It hears the controller, and knows all that clients ask for; what it says does not arrive. Commands
    wait no longer than they do for a person: it may take several tries to hear of everybody in time."""

    def story(controller: int) -> None:
        mute = next(node for node in cluster.nodes if node != controller)
        address = f"{HOST}:{cluster.local.node(mute).client_port}"
        cluster.links.cut(mute, controller)

        def status() -> bool:
            done = run_kraft("quorum", "status", "-b", address, patient=False)
            return done.returncode == 0 and "LeaderId: " in done.stdout

        def listed() -> bool:
            return run_kraft("topic", "list", "-b", address, patient=False).returncode == 0

        def refused() -> bool:
            limit = ("producer_byte_rate=1000000", "--client-id", "x")
            done = run_kraft("quota", "set", *limit, "-b", address, patient=False)
            if not done.returncode:  # another controller was elected meanwhile, which it reaches
                return True
            *notices, end = done.stderr.splitlines()  # it may find partitions without a leader, too
            cut_off = [each for each in notices if each.endswith(NOT_REACHED)]
            told = len(cut_off) == 1 and address in cut_off[0]
            return told and end == f"kraft: {address}: no answer in time"

        wait_until(status, "others were asked for the leader, too")
        wait_until(listed, "it knows the topics")
        wait_until(refused, "it says that the broker does not reach the controller")

    with_one_controller(cluster, story)


def processes(directory: Path) -> list[psutil.Process]:
    """Everything of a cluster: nodes, Toxiproxy, its keeper."""
    local = LocalCluster.attach(directory)
    roots = [each.process() for each in (*local.nodes.values(), *local.companions.values())]
    return [each for root in roots if root for each in (root, *root.children(recursive=True))]


@pytest.mark.row("C1")
def test_links_put_into_a_running_cluster_by_hand(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    where = ("--dir", str(tmp_path))
    local = LocalCluster.create(tmp_path, ports=free_ports(9), detached=True)
    try:
        local.start()
        local.disown()
        put_in = run_kraft("chaos", "link", "slow", "1-3", "20ms", *where)
        assert put_in.returncode == 0, put_in.stderr
        assert [line for line in put_in.stderr.splitlines() if line.startswith("restarting")] == [
            f"restarting node {node}, to connect it through links" for node in (1, 2, 3)
        ]
        assert run_kraft("chaos", "link", "list", *where).stdout == "slow 1>3 20ms\nslow 3>1 20ms\n"
        assert run_kraft("chaos", "link", "heal", "3>1", *where).returncode == 0
        assert [str(fault) for fault in Links.attach(tmp_path).active()] == ["slow 1>3 20ms"]
        left = processes(tmp_path)
        assert len(left) == 5
        assert run_kraft("down", *where).returncode == 0
        wait_until(lambda: not any(map(runs, left)), "all of it has ended")
    finally:
        LocalCluster.attach(tmp_path).close(patience_s=0)


@pytest.mark.row("C1")
def test_chaos_up_says_where_clients_go_and_leaves_nothing_when_killed(
    tmp_path: Path, free_row: Callable[[], int]
) -> None:
    port = free_row()
    command = [*KRAFT, "chaos", "up", "--nodes", "1", "--port", str(port), "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == f"bootstrap.servers={HOST}:{port}\n"
        printed = owner.stdout.readline().strip()
        assert printed == f"c0.bootstrap.servers={ChaosCluster.attach(tmp_path).bootstrap(0)}"
        admin = AdminClient({"bootstrap.servers": printed.partition("=")[2], **QUIET})
        assert list(admin.list_topics(timeout=60).brokers) == [1]
        left = processes(tmp_path)
        assert len(left) == 3
        owner.send_signal(signal.SIGKILL)
        wait_until(lambda: not any(map(runs, left)), "all of it has ended")
