"""What every test may ask for: free ports, Apache Kafka's jars, a real cluster."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from benchmarks.cluster import SystemSkipped
from benchmarks.maven import Artifact, fetch_jars
from kraft.local.free_ports import PARTS, Ports, kept
from kraft.local.layout import CONTROLLER_OFFSET, HTTP_OFFSET
from tests.support.kafka.kafka_node import KafkaNode
from tests.support.kafka.kafka_tools import HOST as TOOL_HOST
from tests.support.kafka.versions import KAFKA_VERSION
from tests.support.nodes.cluster import cluster as cluster  # fixtures: real nodes
from tests.support.nodes.cluster import shared_cluster as shared_cluster
from tests.support.nodes.forks import forked_nodes
from tests.support.nodes.processes import runs
from tests.support.suite import compiled, toolchains
from tests.support.suite.examples import load_profile
from tests.support.suite.last_use import LastUse
from tests.support.suite.rows import RowRecorder
from tests.support.suite.stalls import no_loop_stands_still as no_loop_stands_still
from tests.support.suite.stalls import stalls as stalls
from tests.support.suite.workers import Workers
from tests.support.waiting import wait_until

load_profile()

TRIES_PER_ROW = 1000
KAFKA_ARTIFACTS = tuple(f"org.apache.kafka:{name}" for name in ("kafka_2.13", "kafka-tools", "kafka-shell"))
APPLICATION_ARTIFACTS = tuple(
    f"org.apache.kafka:{name}" for name in ("kafka-streams", "connect-runtime", "connect-file")
)
LOGGING_VERSION = "2.24.3"
LOGGING_ARTIFACTS = ("org.apache.logging.log4j:log4j-slf4j-impl",)
"""Without it Kafka's jars log nothing."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RowRecorder(writes=not hasattr(config, "workerinput")), "kraft-rows")
    config.pluginmanager.register(compiled, "kraft-compiled")
    config.pluginmanager.register(toolchains, "kraft-toolchains")
    config.pluginmanager.register(LastUse(), "kraft-last-use")
    if config.pluginmanager.has_plugin("xdist"):
        config.pluginmanager.register(Workers(), "kraft-workers")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Apache Kafka's JVM takes both cores for seconds before it answers: what asks for its jars is heavy."""
    for item in items:
        if "kafka_jars" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.heavy)


def pytest_collection_finish() -> None:
    """Of thousands of tests and all that they import nothing becomes garbage: to look at it takes a quarter
    of a second, and each simulation looks twice."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _processes() -> Iterator[None]:
    """Nodes are forked; and whatever the tests of this worker started has ended with them."""
    with forked_nodes():
        yield
    wait_until(lambda: not _left(), "no process is left", on_failure=_left)


def _left() -> list[str]:
    """Command lines of processes that run below this one. A process may end at any moment."""
    lines = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if runs(process):
                lines.append(" ".join(process.cmdline()))
    return [line for line in lines if line and TOOL_HOST not in line]


def _worker() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.fixture(scope="session")
def free_ports() -> Iterator[Callable[[int], list[int]]]:
    """Ask for n ports of the loopback that nobody listens on. They stay this worker's to the end: a node that
    was killed finds its own again."""
    with Ports(_worker()) as ports:
        yield ports


@pytest.fixture(scope="session")
def free_row() -> Iterator[Callable[[], int]]:
    """Ask for a port from which `kraft up --port` counts the others of three nodes; these are kept, too. They
    lie far apart, so they come from where no worker takes single ones; of a row that is not free nothing is
    kept."""
    with contextlib.ExitStack() as rows:

        def take() -> int:
            for _ in range(TRIES_PER_ROW):
                with contextlib.ExitStack() as holding, contextlib.suppress(OSError):
                    (first,) = holding.enter_context(Ports(PARTS // 2 + _worker()))(1)
                    row = {first + step + i for step in (0, CONTROLLER_OFFSET, HTTP_OFFSET) for i in range(3)}
                    for port in row - {first}:
                        holding.enter_context(kept(port))
                    rows.enter_context(holding.pop_all())
                    return first
            raise OSError("no row of free ports")

        yield take


@pytest.fixture(scope="session")
def kafka_version(request: pytest.FixtureRequest) -> str:
    """Of Apache Kafka's jars. Tests that run several ask for it with `indirect`: else what was made of this
    fixture for other tests is theirs, too."""
    version: str = getattr(request, "param", KAFKA_VERSION)
    return version


@pytest.fixture(scope="session")
def kafka_jars(kafka_version: str) -> Path:
    """A folder with Apache Kafka's jars: KRAFT_KAFKA_JARS, or fetched once from Maven Central."""
    if shutil.which("java") is None:
        pytest.skip("no java on PATH")
    if named := os.environ.get("KRAFT_KAFKA_JARS"):
        if not list(Path(named).glob("kafka-clients-*.jar")):
            pytest.skip(f"KRAFT_KAFKA_JARS={named} holds no kafka-clients jar")
        return Path(named)
    return _fetched("tools", KAFKA_ARTIFACTS, kafka_version)


@pytest.fixture(scope="session")
def kafka_node(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> KafkaNode:
    """Apache Kafka as a node's software; it writes a log."""
    logging_jars = _fetched("logging", LOGGING_ARTIFACTS, LOGGING_VERSION)
    return KafkaNode((kafka_jars, logging_jars), tmp_path_factory.mktemp("kafka-node"))


@pytest.fixture(scope="session")
def application_jars() -> Path:
    """A folder with Kafka Streams and Kafka Connect, fetched once from Maven Central."""
    if shutil.which("java") is None:
        pytest.skip("no java on PATH")
    return _fetched("applications", APPLICATION_ARTIFACTS, KAFKA_VERSION)


def _fetched(what: str, artifacts: Sequence[str], version: str) -> Path:
    """Jars (GROUP:NAME) and all that they need, in one folder."""
    try:
        return fetch_jars(
            f"kafka-{what}-{version}", [Artifact(*artifact.split(":"), version) for artifact in artifacts]
        )
    except SystemSkipped as missing:
        pytest.skip(str(missing))
