"""Commands that are ended before they are done: by Ctrl-C, by a reader that has seen enough."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from kraft.cli.confluent_client import BOOTSTRAP_VARIABLE
from kraft.cli.errors import INTERRUPTED
from kraft.cli.perf import PATIENCE_S
from kraft.local.local_cluster import LocalCluster
from tests.cli.shell import Shell
from tests.support.clients.rdkafka import read
from tests.support.waiting import PATIENCE_S as PATIENCE

PATIENT = f"""
from kraft.__main__ import main
from kraft.cli import perf
perf.LAST_CHANCE_S = {PATIENCE}
main()
"""
"""What is under way at Ctrl-C comes back within a second, but on a busy machine."""


@pytest.mark.row("U2")
@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("produce --throughput 100", [r"\d+ messages sent in ", "latency: p50 "]),
        ("latency --rate 100", ["acknowledged: p50 ", "end to end:   p50 "]),
    ],
)
def test_ctrl_c_shows_the_figures_so_far(
    shared_cluster: LocalCluster, command: str, printed: list[str]
) -> None:
    kind, *options = command.split()
    topic = f"interrupted-{kind}"
    shell = Shell(shared_cluster.bootstrap)
    shell("topic", "create", topic)
    arguments = ["perf", kind, topic, *options, "--records", "1000000", "-b", shared_cluster.bootstrap]
    with subprocess.Popen(
        [sys.executable, "-c", PATIENT, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            read(shared_cluster.bootstrap, topic, 50)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        finally:
            process.kill()
    assert process.returncode == INTERRUPTED, err
    lines = out.splitlines()
    assert len(lines) == len(printed)
    for line, expected in zip(lines, printed, strict=True):
        assert re.match(expected, line)


def test_what_is_refused_ends_it_at_once(shared_cluster: LocalCluster) -> None:
    """Its reader would wait for what never was written."""
    shell = Shell(shared_cluster.bootstrap)
    shell("topic", "create", "refused-latency")
    began = time.monotonic()
    refused = shell.refused("perf", "latency", "refused-latency", "--acks", "9", "--records", "3")
    assert time.monotonic() - began < PATIENCE_S
    assert "INVALID_REQUIRED_ACKS" in refused


SILENCE = re.compile(
    r"kraft: (.* does not answer|.* does not reach the active controller|no leader that answers: .*|"
    r"the metadata quorum has no leader that answers|controller \d .*)"
)


def told(lines: str) -> list[str]:
    """Without what a command says of nodes that do not answer in time, on a busy machine."""
    return [line for line in lines.splitlines() if not SILENCE.fullmatch(line)]


@pytest.mark.row("U2")
def test_a_reader_that_has_seen_enough_ends_consume(shared_cluster: LocalCluster) -> None:
    """Also where no further message comes, whose writing would show that nobody reads."""
    shell = Shell(shared_cluster.bootstrap)
    shell("topic", "create", "seen-enough")
    shell("produce", "seen-enough", stdin="first\n")
    with subprocess.Popen(
        [sys.executable, "-m", "kraft", "consume", "seen-enough", "--from-beginning"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {BOOTSTRAP_VARIABLE: shared_cluster.bootstrap},
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
            process.stdout.close()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
        assert process.stderr is not None
        assert told(process.stderr.read().decode()) == []


@pytest.mark.row("U2")
def test_ctrl_c_while_typing_says_what_was_sent(shared_cluster: LocalCluster) -> None:
    Shell(shared_cluster.bootstrap)("topic", "create", "typed")
    with subprocess.Popen(
        [sys.executable, "-m", "kraft", "produce", "typed"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {BOOTSTRAP_VARIABLE: shared_cluster.bootstrap},
    ) as process:  # fmt: skip
        try:
            assert process.stdin is not None
            process.stdin.write("a line\n")
            process.stdin.flush()
            read(shared_cluster.bootstrap, "typed", 1)
            process.send_signal(signal.SIGINT)
            code = process.wait(PATIENCE)
        finally:
            process.kill()
        assert process.stderr is not None
        assert code == 130
        assert told(process.stderr.read()) == ["kraft: 1 of 1 messages were acknowledged"]
