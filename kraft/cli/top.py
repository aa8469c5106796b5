"""`kraft top`: the console in a terminal.

    top_screen.py: a terminal ─┐
    --once: one frame ─────────┴─> node_http.py, top_frame.py

Nodes listen for HTTP on the loopback only: it runs on a machine of the cluster, by ssh.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft.cli.bootstrap import Address, addresses
from kraft.cli.command_config import in_use, load, login_of
from kraft.cli.errors import UsageError
from kraft.cli.interruption import stop_in_order

if TYPE_CHECKING:
    from kraft.cli.node_http import NodeHttp

DEFAULT_HTTP: Final = "127.0.0.1:9292,127.0.0.1:9293,127.0.0.1:9294"
"""The HTTP addresses of the three nodes of `kraft up`."""
HTTP_VARIABLE: Final = "KRAFT_HTTP"
ONCE_COLUMNS: Final = 80
ONCE_LINES: Final = 40
"""The size of a frame that is not shown on a terminal."""


def top(
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="HOST:PORT,...",
            envvar=HTTP_VARIABLE,
            help="HTTP ports of nodes; any tells all.",
        ),
    ] = DEFAULT_HTTP,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Of `kraft up`, in place of --http.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
) -> None:
    """Watch a cluster: nodes, partitions with their replicas, groups and their lag, what happens and why.

    \b
    q quit  / filter  up, down: scroll  i Kafka's own topics
    s sort by state, name, lag or size

    A group's lag is in records that a reader of committed records still gets; ≤ says at most so many.
    """
    from kraft.cli.node_http import NodeHttp

    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a terminal is needed; --once prints one frame")
    given = in_use.get()
    where = addresses(http)
    if directory is not None:
        where, properties = _of_directory(directory)
        given = given or ({} if properties is None else load(str(properties)))
    username, password = login_of(given)
    nodes = NodeHttp(where, None if username is None or password is None else (username, password))
    if once:
        _print_once(nodes)
        return
    from kraft.cli.top_screen import watch

    stop_in_order()  # the terminal is to be what it was
    watch(nodes)


def _of_directory(directory: Path) -> tuple[list[Address], Path | None]:
    from kraft.local.free_ports import HOST
    from kraft.local.local_cluster import LocalCluster

    cluster = LocalCluster.attach(directory)
    return [(HOST, node.http_port) for node in cluster.nodes.values()], cluster.client_properties


def _print_once(nodes: NodeHttp) -> None:
    from rich.console import Console

    from kraft.cli.top_frame import Choice, Known, Size, frame
    from kraft.peers.interruptible import run

    snapshot, events = run(nodes.snapshot())
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=ONCE_COLUMNS)
    known = Known(snapshot, tuple(events))
    console.print(frame(known, Choice(), Size(console.width, ONCE_LINES)))


def add_to(cli: typer.Typer) -> None:
    """Hang the command into the tree."""
    cli.command()(top)
