"""`kraft up`, `kraft down`, `kraft node`: a cluster of processes on this machine."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.confluent_client import key_values

if TYPE_CHECKING:
    from kraft.local.local_cluster import LocalCluster

DEFAULT_DIR = Path("kraft-data")
WATCH_S = 0.2

Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the nodes keep everything.")]
Nodes = Annotated[int, typer.Option(min=1, max=100, help="How many nodes.")]
Port = Annotated[int, typer.Option(help="Node i serves clients on port + i - 1.")]
Detach = Annotated[bool, typer.Option("--detach", help="Leave the nodes running; `kraft down` stops them.")]
Configurations = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="A configuration for every node.")
]
NodeId = Annotated[int, typer.Argument(metavar="ID", help="The node, counted from 1.")]

node = typer.Typer(no_args_is_help=True)


def up(
    nodes: Nodes = 3,
    port: Port = 9092,
    directory: Directory = DEFAULT_DIR,
    detach: Detach = False,
    set_: Configurations = [],  # noqa: B006
) -> None:
    """Start a cluster of combined nodes as processes and print its bootstrap.servers.

    Ctrl-C stops all of them. A directory of an earlier run is taken up again with its data.
    """
    from kraft.local.local_cluster import LocalCluster

    signal.signal(signal.SIGTERM, interrupt)
    settings = key_values(set_, "a configuration")
    cluster = LocalCluster.create(directory, nodes=nodes, port=port, settings=settings, detached=detach)
    serve(cluster, cluster.start, detach)


def serve(cluster: LocalCluster, start: Callable[[], None], detach: bool, more: Sequence[str] = ()) -> None:
    """Start a cluster, print its bootstrap.servers (and `more` lines), and stay until it ends or is to."""
    from kraft.local.local_cluster import LocalCluster

    directory = cluster.directory
    try:
        start()
        print(f"bootstrap.servers={cluster.bootstrap}", *more, sep="\n", flush=True)
        if detach:
            cluster.disown()
            return
        while any(node.process() for node in LocalCluster.attach(directory).nodes.values()):
            for name, code in cluster.reap():
                print(f"{name} {_ended(code)}", file=sys.stderr, flush=True)
            time.sleep(WATCH_S)
        print("no node is left", file=sys.stderr)
    except KeyboardInterrupt:
        print("stopping", file=sys.stderr)
        LocalCluster.attach(directory).close()
        cluster.close()
    except BaseException:
        cluster.close()
        raise


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """A handler: SIGTERM is answered as Ctrl-C is."""
    raise KeyboardInterrupt


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def down(directory: Directory = DEFAULT_DIR) -> None:
    """Stop every node of a cluster; its data stays."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).close()


def add_to(cli: typer.Typer) -> None:
    """Hang the commands into the tree."""
    cli.command()(up)
    cli.command()(down)


@node.command()
def kill(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """SIGKILL: the node crashes."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).kill(node_id)


@node.command()
def stop(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """SIGTERM: the node hands its leaders over and ends."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).stop(node_id)


@node.command()
def pause(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """SIGSTOP: the node is silent, its connections stay open."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).pause(node_id)


@node.command()
def resume(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """SIGCONT: resume a paused node."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).resume(node_id)


@node.command("start")
def start_node(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """Start a node that was killed or stopped, on its own data, and wait until it is back."""
    from kraft.local.local_cluster import LocalCluster

    cluster = LocalCluster.attach(directory)
    cluster.start_node(node_id)
    cluster.disown()
