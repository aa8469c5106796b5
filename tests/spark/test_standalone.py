"""Spark's own cluster: a master and two workers, each with an executor that has to find kraft by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from kraft.local.free_ports import HOST
from spark_connector.java import java_environment
from tests.spark.copying import Copying
from tests.spark.dying import WORKER
from tests.spark.topics import Topics
from tests.support.waiting import PATIENCE_S, wait_until

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def daemon(directory: Path, name: str, *arguments: str) -> Iterator[None]:
    """One of `org.apache.spark.deploy`, ended by its pid."""
    environment = {**os.environ, **java_environment(), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(SPARK_CLASS), f"org.apache.spark.deploy.{name.partition('-')[0]}", *arguments],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()  # a worker ends its executors
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        process.kill()
        process.wait()


def workers(page: str) -> int:
    """That the master knows to be alive."""
    with suppress(OSError), urllib.request.urlopen(f"{page}/json/", timeout=PATIENCE_S) as answer:
        return int(json.load(answer)["aliveworkers"])
    return 0


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("standalone")
    port, page_port, *others = free_ports(6)
    url, page = f"spark://{HOST}:{port}", f"http://{HOST}:{page_port}"
    at = ("--host", HOST, "--port")
    with ExitStack() as stack:
        stack.enter_context(
            daemon(directory, "master.Master", *at, str(port), "--webui-port", str(page_port))
        )
        for number in range(2):
            place = (*at, str(others[2 * number]), "--webui-port", str(others[2 * number + 1]))
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"))
            stack.enter_context(daemon(directory, f"worker.Worker-{number}", *place, *size, url))
        wait_until(lambda: workers(page) == 2, "both workers")
        yield url
        ran = [len(list(directory.glob(f"work-{number}/app-*/*/stderr"))) for number in range(2)]
        assert all(ran), f"executors of the workers: {ran}"


@pytest.mark.long
@pytest.mark.row("S1", "S3")
def test_a_task_is_repeated_on_two_workers(master: str, topics: Topics, tmp_path: Path):
    """A query that copies in transactions; a Python worker is killed with SIGKILL after it has written, and
    its task comes again, as Spark does it on a cluster."""
    copying = Copying(topics, tmp_path)
    copying.options["minPartitions"] = "6"
    for kills in (0, 1):
        copying.fill(50)
        for _ in range(kills):
            copying.deaths.plan("worker-killed", passes=1, who=WORKER)
        given = [json.dumps(copying.options), json.dumps(copying.into), copying.checkpoint, master]
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.copying_query", *given],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert not (tmp_path / "worker-killed").exists(), "nobody died"
    copying.check()
