"""`kraft perf` that is ended by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from kraft.cli.errors import INTERRUPTED
from kraft.local.local_cluster import LocalCluster
from tests.cli.shell import Shell
from tests.support.clients.rdkafka import read

TOPIC = "interrupted"


@pytest.mark.row("U2")
def test_ctrl_c_shows_the_figures_so_far(shared_cluster: LocalCluster) -> None:
    shell = Shell(shared_cluster.bootstrap)
    shell("topic", "create", TOPIC)
    command = ["perf", "produce", TOPIC, "--records", "1000000", "--throughput", "100"]
    with subprocess.Popen(
        [sys.executable, "-m", "kraft", *command, "-b", shared_cluster.bootstrap],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            read(shared_cluster.bootstrap, TOPIC, 1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        finally:
            process.kill()
    assert process.returncode == INTERRUPTED, err
    sent, latency = out.splitlines()
    assert 0 < int(sent.split()[0]) < 1_000_000
    assert "messages sent in" in sent
    assert latency.startswith("latency: p50 ")
