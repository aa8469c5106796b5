"""`kraft up`, `kraft down`, `kraft node`: a cluster of processes on this machine."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.confluent_client import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, key_values
from kraft.cli.errors import UsageError, tell
from kraft.cli.interruption import stop_in_order
from kraft.cli.tables import prints_table, show
from kraft.local.free_ports import HOST
from metadata_quorum.foundation.errors import FatalError

if TYPE_CHECKING:
    from kraft.local.local_cluster import LocalCluster

DEFAULT_DIR = Path("kraft-data")
WATCH_S = 0.2
_OF_ONE_NODE = {"node.id", "broker.id", "kraft.http.port", "log.dir", "log.dirs", "listeners"}

Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the nodes keep everything.")]
Nodes = Annotated[int, typer.Option(min=1, max=100, help="How many nodes.")]
Port = Annotated[int, typer.Option(help="Node i serves clients on port + i - 1.")]
Detach = Annotated[bool, typer.Option("--detach", help="Leave the nodes running; `kraft down` stops them.")]
Configurations = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="A configuration for every node, in this run.")
]
ConsoleWrites = Annotated[
    bool, typer.Option("--console-writes", help="The console may produce, and break chaos links and nodes.")
]
NodeId = Annotated[int, typer.Argument(metavar="ID", help="The node, counted from 1.")]

node = typer.Typer(no_args_is_help=True)


def up(
    nodes: Nodes = 3,
    port: Port = 9092,
    directory: Directory = DEFAULT_DIR,
    detach: Detach = False,
    set_: Configurations = [],  # noqa: B006
    tls: Annotated[bool, typer.Option("--tls", help="Behind certificates, which are made.")] = False,
    sasl: Annotated[bool, typer.Option("--sasl", help="Behind logins (SCRAM), with a user for you.")] = False,
    console_writes: ConsoleWrites = False,
) -> None:
    """Start a cluster of combined nodes as processes and print its bootstrap.servers.

    Node i serves clients on --port + i - 1, controllers 100 above, HTTP 200 above. Ctrl-C stops all of them.
    A directory of an earlier run is taken up again with its data.
    """
    from kraft.local.layout import nodes_from, refuse_taken_ports
    from kraft.local.local_cluster import LocalCluster

    stop_in_order()
    settings = settings_of_all(set_) | (console_writes_of(directory) if console_writes else {})
    if not (directory / "cluster.json").exists():
        refuse_taken_ports(nodes_from(nodes, port))  # before anything is made
    cluster = LocalCluster.create(
        directory, nodes=nodes, port=port, settings=settings, detached=detach, tls=tls, sasl=sasl
    )
    serve(cluster, cluster.start, detach)


def settings_of_all(pairs: list[str]) -> dict[str, str]:
    """What `--set` sets on all nodes. Raises UsageError for keys that nodes cannot have in common."""
    settings = key_values(pairs, "a configuration")
    if own := sorted(settings.keys() & _OF_ONE_NODE):
        raise UsageError(f"{own[0]} is each node's own: `kraft up` counts ports from --port, and ids from 1")
    return settings


def console_writes_of(directory: Path) -> dict[str, str]:
    """The settings that let the console of every node write."""
    return {"kraft.http.writes": "true", "kraft.http.faults.dir": str(directory.absolute())}


def serve(cluster: LocalCluster, start: Callable[[], None], detach: bool, more: Sequence[str] = ()) -> None:
    """Start a cluster, print its bootstrap.servers (and `more` lines), and stay until it ends or is to."""
    from kraft.local.processes import how_ended

    try:
        start()
        print(f"bootstrap.servers={cluster.bootstrap}", *more, sep="\n", flush=True)
        if sys.stderr.isatty():
            tell(*_what_next(cluster, detach))
        if detach:
            cluster.disown()
            return
        while (noted := _as_noted(cluster)) and any(node.process() for node in noted.nodes.values()):
            for name, code in cluster.reap():
                tell(f"{name} {how_ended(code)}")
            time.sleep(WATCH_S)
        tell("no node is left")
    except KeyboardInterrupt:
        tell("stopping")
        with suppress(FatalError, OSError):  # its directory may have been removed
            if noted := _as_noted(cluster):
                noted.close()  # also what others have started
        cluster.close()
    except BaseException:
        cluster.close()
        raise


def _as_noted(cluster: LocalCluster) -> LocalCluster | None:
    """As it is written down, with nodes that others have started; None where it is another command's by now.
    Raises FatalError."""
    from kraft.local.runs import CALLED_OFF

    noted = cluster.attach(cluster.directory)
    return noted if noted.run in (cluster.run, CALLED_OFF) else None


def _what_next(cluster: LocalCluster, detach: bool) -> Iterator[str]:
    """Hints for people; scripts read bootstrap.servers on standard output."""
    for node in cluster.nodes.values():
        yield (
            f"node {node.id}: clients on port {node.client_port}, controllers {node.controller_port}, "
            f"http://{HOST}:{node.http_port}/status"
        )
    yield f"data and logs: {cluster.directory}"
    where = "" if cluster.directory == DEFAULT_DIR.absolute() else f" --dir {_shown(cluster.directory)}"
    options = ""
    if cluster.bootstrap.split(",")[0] != DEFAULT_BOOTSTRAP:
        yield f"for commands in another terminal: export {BOOTSTRAP_VARIABLE}={cluster.bootstrap}"
    if cluster.client_properties is not None:
        options = f" --command-config {_shown(cluster.client_properties)}"
    yield f"try: kraft topic create hello{options}   kraft node kill 2{where}   kraft node list{where}"
    yield f"stop: kraft down{where}" if detach else "Ctrl-C stops all"


def _shown(path: Path) -> str:
    """The path as short as it can be typed in the working directory."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def down(directory: Directory = DEFAULT_DIR) -> None:
    """Stop every node of a cluster; its data stays."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory)  # else nothing is left there
    _call_off(directory)
    cluster = LocalCluster.attach(directory)  # with all nodes that there will be
    running = sum(node.process() is not None for node in cluster.nodes.values())
    cluster.close()
    print(f"Stopped {running} of {len(cluster.nodes)} nodes; their data stays in {cluster.directory}.")


def _call_off(directory: Path) -> None:
    """No other command starts nodes of that run any more."""
    from kraft.local.local_cluster import LocalCluster
    from kraft.local.private_files import alone_in
    from kraft.local.runs import CALLED_OFF

    with suppress(OSError), alone_in(directory):  # on a full disk nodes can be stopped all the same
        noted = LocalCluster.attach(directory)
        noted.run = CALLED_OFF
        noted.save()


def add_to(cli: typer.Typer) -> None:
    """Hang the commands into the tree."""
    cli.command()(up)
    cli.command()(down)


@node.command("list")
@prints_table
def list_(directory: Directory = DEFAULT_DIR) -> None:
    """List the nodes: what their processes do, and where they listen."""
    from kraft.local.local_cluster import LocalCluster
    from kraft.local.processes import has_stopped

    cluster = LocalCluster.attach(directory)
    rows = []
    for each in cluster.nodes.values():
        process = each.process()
        state = "down" if process is None else "paused" if has_stopped(process) else "running"
        rows.append(
            (
                each.id,
                state,
                None if process is None else each.pid,
                f"{HOST}:{each.client_port}",
                f"{HOST}:{each.controller_port}",
                f"{HOST}:{each.http_port}",
            )
        )
    show(
        ("node", "state", "pid", "clients", "controllers", "http"),
        rows,
        about={"directory": cluster.directory, "listeners": cluster.security.protocol},
    )


@node.command()
def kill(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """SIGKILL: the node crashes."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).kill(node_id)
    print(f"Killed node {node_id}.")


@node.command()
def stop(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """SIGTERM: the node hands its leaders over and ends."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).stop(node_id)
    print(f"Stopped node {node_id}.")


@node.command()
def pause(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """SIGSTOP: the node is silent, its connections stay open."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).pause(node_id)
    print(f"Paused node {node_id}.")


@node.command()
def resume(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """SIGCONT: resume a paused node."""
    from kraft.local.local_cluster import LocalCluster

    LocalCluster.attach(directory).resume(node_id)
    print(f"Resumed node {node_id}.")


@node.command("start")
def start_node(node_id: NodeId, directory: Directory = DEFAULT_DIR) -> None:
    """Start a node that was killed or stopped, on its own data, and wait until it is back.

    Where too few nodes run for a metadata quorum there is nothing to wait for: start the others, too.
    """
    from kraft.local.local_cluster import LocalCluster

    cluster = LocalCluster.attach(directory)
    has_majority = cluster.has_majority(started=node_id)
    cluster.start_node(node_id, wait=has_majority)
    cluster.disown()
    if has_majority:
        print(f"Started node {node_id}.")
    else:
        print(f"Started node {node_id}; it waits for a majority of {len(cluster.nodes)} nodes.")
