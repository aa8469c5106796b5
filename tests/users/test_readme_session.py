"""The README's first session, typed into two terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from kraft.cli.confluent_client import BOOTSTRAP_VARIABLE
from kraft.local.local_cluster import LocalCluster
from tests.support.waiting import PATIENCE_S

README = Path(__file__).parents[2] / "README.md"
CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"
PROMPT: Final = re.compile(r"code-(\d+)> ")
LINES: Final = ("EWR,IAH", "JFK,LAX", "LGA,ORD")


class Terminal:
    """bash on a terminal of its own; its prompt shows the exit code of the command before."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._unread = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, pattern: re.Pattern[str]) -> tuple[str, re.Match[str]]:
        """What is shown up to the first match, and the match."""
        deadline = time.monotonic() + PATIENCE_S
        while (match := pattern.search(self._unread)) is None:
            readable, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"{pattern.pattern} did not come: {self._unread}"
            self._unread += os.read(self._fd, 65536).decode(errors="replace").replace("\r\n", "\n")
        before, self._unread = self._unread[: match.start()], self._unread[match.end() :]
        return before, match

    def run(self, line: str, typed: str = "") -> str:
        """A command to its end; what it showed."""
        self.type(f"{line}\n{typed}")
        shown, prompt = self.expect(PROMPT)
        assert prompt[1] == "0", f"{line}: {shown}"
        return shown


@contextmanager
def terminal(directory: Path, **variables: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    environment = os.environ | variables | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "code-$?> ",
    }  # fmt: skip
    bash = subprocess.Popen(
        ["bash", "--noprofile", "--norc", "--noediting", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=directory, env=environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # else Ctrl-C would be a mere character
    )  # fmt: skip
    os.close(theirs)
    try:
        opened = Terminal(ours)
        opened.expect(PROMPT)
        yield opened
    finally:
        bash.kill()
        bash.wait()
        os.close(ours)


def session() -> list[str]:
    """The commands, as they stand there."""
    (section,) = re.findall(r"## A first session\n(.*?)\nAny Kafka client", README.read_text(), re.DOTALL)
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


@pytest.mark.long
@pytest.mark.row("U2")
def test_the_session_as_it_is_typed(tmp_path: Path, free_row: Callable[[], int]) -> None:
    setup, up, *commands = session()
    assert setup.startswith("make setup")
    port = free_row()
    bootstrap = ",".join(f"127.0.0.1:{port + i}" for i in range(3))
    shown: dict[str, str] = {}
    try:
        with (
            terminal(tmp_path) as first,
            terminal(tmp_path, **{BOOTSTRAP_VARIABLE: bootstrap}) as second,
        ):
            command, _, comment = up.partition("#")
            first.type(f"{command.strip()} --port {port} #{comment}\n")
            printed, _ = first.expect(re.compile("\nCtrl-C stops all\n"))
            assert f"bootstrap.servers={bootstrap}\n" in printed
            assert (
                f"clients on port {port + 2}, controllers {port + 102}, http://127.0.0.1:{port + 202}"
                in printed
            )
            for line in commands:
                if line.startswith("kraft consume"):
                    second.type(f"{line}\n")
                    for _ in LINES:
                        second.expect(re.compile("EWR,IAH|JFK,LAX|LGA,ORD"))
                    second.type(CTRL_C)
                    _, prompt = second.expect(PROMPT)
                    assert prompt[1] == "130"
                elif line.startswith("kraft produce"):
                    typed = "".join(f"{each}\n" for each in LINES) + CTRL_D
                    assert "3 messages acknowledged." in second.run(line, typed)
                else:
                    shown[line.split("#")[0].strip()] = second.run(line)
            first.type(CTRL_C)
            first.expect(PROMPT)
    finally:
        if (tmp_path / "demo-data" / "cluster.json").exists():
            LocalCluster.attach(tmp_path / "demo-data").close(patience_s=0)
    assert "boards  flights" in shown["kraft group describe boards"].replace("   ", "  ")
    assert "Killed node 2." in shown["kraft node kill 2 --dir demo-data"]
    assert "Started node 2." in shown["kraft node start 2 --dir demo-data"]
    assert "Log starting offset: 0" in shown["kraft log dump demo-data/node-1/data/flights-0/*.log"]


def test_who_breaks_a_cluster_by_hand_names_it() -> None:
    lines = [line for line in README.read_text().splitlines() if line.startswith("    kraft chaos link")]
    assert lines
    assert all("--dir demo-data" in line for line in lines)
