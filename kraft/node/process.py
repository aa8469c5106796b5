"""One node as a process: its configuration, its exit code, and whom it ends with.

    python -m kraft.node.process server.properties [--with PID]

`kraft start` does the same with help and options; nodes of a local cluster are started by this
module, because it imports nothing that a node does not need.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kraft.monitoring import log_lines
from kraft.monitoring.standard_error import tell
from kraft.node.allocator import give_large_blocks_back
from metadata_quorum.foundation.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from kraft.config.node_config import Config

OWNER_POLL_S: Final = 0.5
GC_THRESHOLDS: Final = (25_000, 2, 4_000)
"""Collections are a pause; what a request leaves behind is freed by counting references. From the beginning:
imports, and logs that are opened, make many objects that stay. The first two bound a pause: it looks at
three times 25,000 objects that have stayed, some 10 ms."""


def serve(config: Config) -> int:
    """Run the node, once its configuration is known to be good: the rest takes a while to import."""
    from kraft.node.serve import run

    return run(config)


def run_node(
    path: str,
    overrides: Mapping[str, str] | None = None,
    owner: int | None = None,
    run: Callable[[Config], int] = serve,
) -> int:
    """Run a node until a signal ends it; returns the exit code. What is wrong with its configuration or its
    machine is one line on standard error."""
    gc.set_threshold(*GC_THRESHOLDS)
    give_large_blocks_back(os.environ)
    # Until the loop takes signals, there is nothing to put in order: Ctrl-C simply ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise_file_limit()
    if owner is not None:
        threading.Thread(target=end_with, args=(owner,), name="owner", daemon=True).start()
    try:
        log_lines.set_up(os.environ)
        from kraft.config.node_config import Config

        return run(Config.load(path, overrides))
    except FatalError as error:
        return _refuse(error.reason, error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"cannot start: {where}{error.strerror or error}", ExitCode.DISK_FAILED)


def _refuse(reason: str, code: ExitCode) -> int:
    tell(f"kraft: {reason}")
    return int(code)


def raise_file_limit() -> None:
    """As many files and connections as the system lets this process have, not only as many as is usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # some systems call more unlimited than they grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def end_with(owner: int) -> None:
    """Kill this process as soon as its owner has ended, however that came (SIGKILL included)."""
    outlive(owner)
    os.kill(os.getpid(), signal.SIGKILL)


def outlive(owner: int) -> None:
    """Wait until a process has ended, which need not be a child of this one."""
    with contextlib.suppress(ProcessLookupError):
        try:
            poll = select.poll()
            poll.register(os.pidfd_open(owner), select.POLLIN)
            poll.poll()
        except (AttributeError, PermissionError, OSError) as error:
            if isinstance(error, ProcessLookupError):
                raise
            while True:  # a system without pidfds
                with contextlib.suppress(PermissionError):  # somebody else's, and there
                    os.kill(owner, 0)
                time.sleep(OWNER_POLL_S)


def main(arguments: Sequence[str]) -> int:
    """`FILE [--with PID]`."""
    match list(arguments):
        case [path]:
            return run_node(path)
        case [path, "--with", owner] if owner.isdecimal():
            return run_node(path, owner=int(owner))
        case _:
            print("usage: python -m kraft.node.process FILE [--with PID]", file=sys.stderr)  # noqa: T201
            return ExitCode.USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
