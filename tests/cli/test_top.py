"""`kraft top` against real nodes: one frame for a pipe, and the screen of a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.cli.errors import INTERRUPTED
from kraft.local.local_cluster import LocalCluster
from tests.support.clients.rdkafka import send
from tests.support.nodes.forks import run_kraft
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.row("U5")

LINES, COLUMNS = 30, 80


def addresses(cluster: LocalCluster) -> str:
    return ",".join(f"127.0.0.1:{node.http_port}" for node in cluster.nodes.values())


@pytest.fixture(scope="module")
def watched(shared_cluster: LocalCluster) -> LocalCluster:
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    admin.create_topics([NewTopic("topped", 1, 3)])["topped"].result()
    send(shared_cluster.bootstrap, "topped", [{"value": b"v", "partition": 0}] * 3, acks="all")
    return shared_cluster


def test_one_frame_for_a_pipe(watched: LocalCluster) -> None:
    nobody = "127.0.0.1:1"

    def drawn() -> list[str] | None:
        """While another controller is elected there is none."""
        done = run_kraft("top", "--once", "--http", f"{nobody},{addresses(watched)}")
        assert (done.returncode, done.stderr) == (0, "")
        frame = done.stdout.splitlines()
        one_controls = sum("controller" in line for line in frame) == 1
        return frame if one_controls and "3/3 brokers" in frame[1] else None

    frame = wait_until(drawn, "all brokers are shown, and which of them is the controller")
    assert max(map(len, frame)) <= COLUMNS
    done = run_kraft("top", "--once", "--http", nobody)
    assert (done.returncode, done.stderr) == (1, f"kraft: no node answers over HTTP at {nobody}\n")
    assert (
        run_kraft("top", "--http", nobody).stderr == "kraft: a terminal is needed; --once prints one frame\n"
    )


def test_a_terminal_is_drawn_and_left_as_it_was(watched: LocalCluster, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "kraft", "top", "--http", addresses(watched)]
    screen = bytearray()

    def shows(text: str) -> bool:
        while select.select([ours], [], [], 0)[0]:
            screen.extend(os.read(ours, 65536))
        return text.encode() in screen

    with (tmp_path / "errors").open("wb") as errors:
        top = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=errors, env=os.environ | {"TERM": "xterm"}
        )
    try:
        wait_until(lambda: shows("TOPIC by state"), "the cluster is drawn")
        os.write(ours, b"/topped\rs")
        wait_until(lambda: shows("filter: topped"), "the filter is shown")
        wait_until(lambda: shows("TOPIC by name"), "the order is another")
        os.write(ours, b"q")
        wait_until(lambda: shows("\x1b[?1049l"), "the other screen is left")
        assert top.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(theirs) == before
        assert (tmp_path / "errors").read_text() == ""
    finally:
        top.kill()
        top.wait()
        os.close(ours)
        os.close(theirs)


WHILE_THE_SCREEN_IS_TAKEN = """
import os, signal
from rich.console import Console
show_cursor = Console.show_cursor
def interrupted(console, show=True):
    Console.show_cursor = show_cursor
    os.kill(os.getpid(), signal.SIGTERM)
    return show_cursor(console, show)
Console.show_cursor = interrupted
from kraft.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "program", [("-m", "kraft"), ("-c", WHILE_THE_SCREEN_IS_TAKEN)], ids=["while it is shown", "before"]
)
def test_a_terminal_is_left_as_it_was_by_sigterm(tmp_path: Path, program: tuple[str, str]) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    before = termios.tcgetattr(theirs)
    screen = bytearray()

    def shows(text: bytes) -> bool:
        while select.select([ours], [], [], 0)[0]:
            screen.extend(os.read(ours, 65536))
        return text in screen

    command = [sys.executable, *program, "top", "--http", "127.0.0.1:1"]
    with (tmp_path / "errors").open("wb") as errors:
        top = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=errors, env=os.environ | {"TERM": "xterm"}
        )
    try:
        wait_until(lambda: shows(b"\x1b[?1049h"), "the other screen is there")
        if program[0] == "-m":
            assert termios.tcgetattr(theirs) != before
            top.terminate()
        wait_until(lambda: shows(b"\x1b[?1049l"), "the other screen is left")
        assert top.wait(PATIENCE_S) == INTERRUPTED
        assert termios.tcgetattr(theirs) == before
        assert (tmp_path / "errors").read_text() == ""
    finally:
        top.kill()
        top.wait()
        os.close(ours)
        os.close(theirs)
