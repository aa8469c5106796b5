"""How a node ends that must not go on: at once, whether or not it can still say why."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from metadata_quorum.foundation.errors import ExitCode

ENDS = """
import asyncio
from kraft.node.serve import end_at_once, new_loop
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation
from metadata_quorum.foundation.supervision import ErrorBoundary

def fails():
    raise {error}

async def node():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(ErrorBoundary(end_at_once, loop.time).loop_error)
    loop.call_soon(fails)
    for _ in range(3):
        await asyncio.sleep(0)
    print("it went on")

asyncio.Runner(loop_factory=new_loop).run(node())
"""


@pytest.fixture(params=["full disk", "closed pipe"])
def deaf(request: pytest.FixtureRequest) -> Iterator[int]:
    """A descriptor that nothing can be written to."""
    if request.param == "full disk":
        with open("/dev/full", "wb") as full:
            yield full.fileno()
    else:
        reader, writer = os.pipe()
        os.close(reader)
        with closing(os.fdopen(writer, "wb")):
            yield writer


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that nobody reads, and that is full."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with closing(os.fdopen(reader, "rb")), closing(os.fdopen(writer, "wb", buffering=0)) as full:
        while full.write(bytes(4096)):
            pass
        os.set_blocking(writer, True)
        yield writer


WHY = pytest.mark.parametrize(
    ("error", "code"),
    [
        ("FatalError(ExitCode.DISK_FAILED, 'the disk has failed')", ExitCode.DISK_FAILED),
        ("InvariantViolation(next(iter(Invariant)), 'broken')", ExitCode.INVARIANT_BROKEN),
    ],
)


@WHY
def test_it_ends_though_nobody_reads_why(unread: int, error: str, code: ExitCode) -> None:
    test_it_ends_though_it_cannot_say_why(unread, error, code)


@WHY
def test_it_ends_though_it_cannot_say_why(deaf: int, error: str, code: ExitCode) -> None:
    """The log may lie on the disk that is full."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS.format(error=error)],
        stdout=subprocess.PIPE, stderr=deaf, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, b"")


def test_one_that_cannot_start_says_so_by_its_exit_code(deaf: int, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("node.id=many\n")
    command = [sys.executable, "-m", "kraft.node.process", str(properties)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=deaf, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (ExitCode.BAD_CONFIG, b"")
