"""kraft.testing and its pytest plugin, as users have them: the README's code runs in a pytest of its own."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from kraft.local.local_cluster import LocalCluster
from kraft.testing import cluster
from metadata_quorum.foundation.errors import BrokerError, FatalError
from tests.support.nodes.forks import run_kraft
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy

README = Path(__file__).parents[2] / "README.md"
CODE = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)


def write_readme_code(directory: Path) -> None:
    for name, code in CODE.findall(README.read_text()):
        (directory / name).write_text(code)


def pytest_command(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        *arguments,
    ]


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = pytest_command(*arguments)
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.row("U3")
def test_the_readmes_code_is_a_test_that_passes(tmp_path: Path) -> None:
    write_readme_code(tmp_path)
    done = run_pytest(tmp_path, "-n", "2", "test_shop.py", "test_partition.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "warning" not in done.stdout


@pytest.mark.row("U3")
def test_one_cluster_for_all_tests_and_others_beside_it(tmp_path: Path) -> None:
    (tmp_path / "test_scopes.py").write_text(
        """
import pytest

seen = []

@pytest.fixture(scope="module")
def single(kraft_cluster_factory):
    with kraft_cluster_factory(nodes=1, settings={"num.partitions": 4}) as cluster:
        yield cluster

def test_first(kraft_session_cluster, single):
    assert kraft_session_cluster.nodes == (1, 2, 3)
    assert single.nodes == (1,)
    single.create_topic("t", partitions=-1)
    assert single.leader("t", 3) == 1
    seen.append((kraft_session_cluster.bootstrap, single.bootstrap))

def test_second(kraft_session_cluster, single):
    assert seen == [(kraft_session_cluster.bootstrap, single.bootstrap)]
"""
    )
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.row("U3")
def test_nothing_is_left_of_a_run_that_was_killed(tmp_path: Path) -> None:
    """Not even a node that was paused, and cannot notice."""
    (tmp_path / "test_killed.py").write_text(
        """
import time

def test_endless(kraft_cluster):
    kraft_cluster.pause(2)
    open("ready", "w").write(str(kraft_cluster.directory))
    time.sleep(600)
"""
    )
    with subprocess.Popen(pytest_command("-q"), cwd=tmp_path, stdout=subprocess.DEVNULL) as run:
        try:
            wait_until((tmp_path / "ready").exists, "the test runs")
            directory = wait_until((tmp_path / "ready").read_text, "it says where")
            nodes = LocalCluster.attach(Path(directory)).nodes.values()
            alive = [process for node in nodes if (process := node.process())]
            assert [each.status() == psutil.STATUS_STOPPED for each in alive] == [False, True, False]
        finally:
            run.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(node.process() for node in nodes), "its nodes are gone")


def test_loading_the_plugin_imports_nothing_of_kraft() -> None:
    code = (
        "import sys, kraft.pytest_plugin; ours = ('kraft', 'kio', 'confluent_kafka', 'chaos'); "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ours))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['kraft', 'kraft.pytest_plugin']"


@pytest.mark.row("U3")
def test_from_a_coroutine_with_everything_that_can_happen_to_a_node() -> None:
    async def body() -> None:
        with cluster(settings={"auto.create.topics.enable": False}) as kafka:
            kafka.create_topic("t", partitions=2, config={"min.insync.replicas": 2})
            leader = kafka.leader("t", 1)
            kafka.kill(leader)
            wait_until(lambda: kafka.leader("t", 1) != leader, "another leader")
            kafka.start(leader)
            kafka.restart(leader)
            kafka.pause(1)
            kafka.resume(1)
            with pytest.raises(BrokerError, match="already exists"):
                kafka.create_topic("t")
            with pytest.raises(RuntimeError, match="links=True"):
                kafka.isolate(1)
            with pytest.raises(FatalError, match="there is no node 4"):
                kafka.kill(4)
            with pytest.raises(LookupError, match="t has no partition 7; it has 2") as raised:
                kafka.leader("t", 7)
            assert raised.value.__suppress_context__
            assert len(raised.traceback) == 2, "the test's own line, and that of the method"
            with pytest.raises(LookupError, match="there is no topic nope"):
                kafka.leader("nope")
            kafka.delete_topic("t")
            names = {kafka.create_unique_topic("orders", partitions=2) for _ in range(2)}
            assert len(names) == 2
            for node in kafka.nodes:
                kafka.kill(node)
            with pytest.raises(FatalError, match="no node runs"):
                kafka.create_topic("t")
            with pytest.raises(FatalError, match=r"start_all\(\)"):
                kafka.start(1)
            kafka.start(1, wait=False)
            kafka.start_all()
            assert all(kafka.leader(name, 1) for name in names)
            directory = kafka.directory
        assert not directory.exists()

    asyncio.run(body())


@pytest.mark.row("U3", "U4")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH")
def test_tls_and_logins_are_one_option_each(tmp_path: Path) -> None:
    """One node; that three find each other so is tests/compat/test_secured_cluster.py's."""
    with cluster(1, tls=True, sasl=True, directory=tmp_path) as kafka:
        name = kafka.create_unique_topic()
        assert kafka.client_settings["security.protocol"] == "SASL_SSL"
        producer = Producer(kafka.client_settings | {"enable.idempotence": True, "log_level": 0})
        producer.produce(name, b"tea")
        assert producer.flush(60) == 0
        reader = Consumer(kafka.client_settings | {"group.id": "readers", "auto.offset.reset": "earliest"})
        reader.subscribe([name])
        assert [message.value() for message in reader.consume(1, timeout=60)] == [b"tea"]
        reader.close()
        command = ("topic", "list", "-b", kafka.bootstrap)
        assert kafka.client_properties is not None
        let_in = run_kraft(*command, "--command-config", str(kafka.client_properties))
        assert name in let_in.stdout.split(), let_in.stderr
        assert run_kraft(*command).returncode == 1
        kafka.restart(1)
        assert kafka.leader(name) == 1
        no_links = run_kraft("chaos", "link", "cut", "1>c0", "--dir", str(tmp_path))
        assert "links are for plain listeners; those of this cluster are SASL_SSL" in no_links.stderr
    with pytest.raises(FatalError, match="links are for plain listeners"), cluster(1, links=True, tls=True):
        pass


def test_what_is_missing_for_links_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FatalError, match="put toxiproxy-server on PATH"), cluster(1, links=True):
        pass
