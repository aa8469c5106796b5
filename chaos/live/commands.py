"""`kraft chaos up`, `kraft chaos link`: break a cluster by hand.

`up` starts a cluster with links; `link` adds links to a running `kraft up` without any, at the first fault. A
fault stays until it is healed, by any process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kraft.cli.cluster import (
    DEFAULT_DIR,
    Configurations,
    ConsoleWrites,
    Detach,
    Directory,
    Nodes,
    Port,
    console_writes_of,
    serve,
    settings_of_all,
)
from kraft.cli.errors import CliError, UsageError
from kraft.cli.interruption import stop_in_order

if TYPE_CHECKING:
    from chaos.live.link_faults import End
    from chaos.live.links import Links
    from kraft.local.local_cluster import LocalCluster

Parsed = TypeVar("Parsed")

CLIENTS = 1
"""Of a cluster that is broken by hand; all others go past the links."""


def up(
    nodes: Nodes = 3,
    port: Port = 9092,
    clients: Annotated[int, typer.Option(min=0, help="How many clients get links of their own.")] = CLIENTS,
    directory: Directory = DEFAULT_DIR,
    detach: Detach = False,
    set_: Configurations = [],  # noqa: B006
    console_writes: ConsoleWrites = False,
) -> None:
    """Start a cluster whose nodes reach each other by links that `kraft chaos link` can break.

    Prints bootstrap.servers past all links, and one for each client whose links can be broken too.
    """
    from chaos.live.cluster import ChaosCluster
    from kraft.local.free_ports import Ports

    stop_in_order()
    settings = settings_of_all(set_) | (console_writes_of(directory) if console_writes else {})
    with Ports() as ports:
        cluster = ChaosCluster.create(
            directory, nodes=nodes, clients=clients, settings=settings, port=port, take_ports=ports,
            detached=detach,
        )  # fmt: skip
        lines = [f"c{i}.bootstrap.servers={cluster.bootstrap(i)}" for i in range(clients)]
        serve(cluster.local, cluster.start, detach, lines)


def link(
    words: Annotated[list[str], typer.Argument(metavar="FAULT", show_default=False)],
    directory: Directory = DEFAULT_DIR,
) -> None:
    """Break a link of a running cluster, or heal it.

    A fault acts on what the first end says to the second: nodes by id, clients as c0. `2-1` is both ways.
    Quote the link, or write `2 to 1`: a shell takes > for itself.

    \b
    cut '2>1'                nothing arrives, nothing ends
    slow '1>3' 200ms [50ms]  all arrives late, give or take
    bandwidth '1>3' 8KB/s    no more arrives
    slow-close '1>3' 2s      a connection's end comes late
    timeout '1>3' 5s         a cut; connections then end
    slice '1>3' 16B [4B] [1ms]
                             it arrives in pieces, give or
                             take, with pauses between them
    limit '1>3' 10KB         a connection ends after that
    reset '1>3' [1s]         a connection is reset, so long
                             after its first bytes
    down '1>3'               connections end, new ones are
                             refused
    heal ['2>1']             nothing is wrong with a link
                             any longer, or with any
    list                     what is wrong now

    On a cluster of plain `kraft up`, the first fault puts the links in: its nodes are restarted one after
    another.
    """
    from chaos.live.link_faults import BadFault, LinkFault, parse_link
    from chaos.live.links import Links, has_links
    from chaos.live.toxiproxy import runs_beside
    from kraft.local.local_cluster import LocalCluster

    local = LocalCluster.attach(directory)
    match words:
        case ["list"]:
            for fault in Links.attach(local.directory).active() if runs_beside(local) else ():
                print(fault)
        case ["heal", *rest]:
            ends = _parsed(parse_link, rest) if rest else None
            if runs_beside(local):
                _heal(Links.attach(local.directory), ends)
            print(f"Healed {' '.join(rest) or 'all links'}.")
        case _:
            fault = _parsed(LinkFault.parse, words)
            if not has_links(local):
                _put_links_in(local)
            try:
                Links.attach(local.directory).apply(fault)
            except BadFault as error:
                raise CliError(str(error)) from None
            print(f"{fault}, until `kraft chaos link heal`.")


def _heal(links: Links, ends: tuple[End, End, bool] | None) -> None:
    """All where no ends are named."""
    if ends is None:
        links.heal_all()
        return
    source, target, both = ends
    links.heal(source, target)
    if both:
        links.heal(target, source)


def _put_links_in(local: LocalCluster) -> None:
    from chaos.live.cluster import put_links_in
    from kraft.local.free_ports import Ports

    with Ports() as ports:
        wiring = put_links_in(local, CLIENTS, lambda line: print(line, file=sys.stderr, flush=True), ports)
    local.disown()
    for client in range(CLIENTS):
        print(f"c{client}.bootstrap.servers={wiring.bootstrap(client)}", file=sys.stderr)


def _parsed(parse: Callable[[str], Parsed], words: Sequence[str]) -> Parsed:
    """Raises UsageError. An unquoted `cut 2>1` redirects standard error to a file named 1: then it is printed
    where the user sees it."""
    from chaos.live.link_faults import BadFault

    try:
        return parse(" ".join(words))
    except BadFault as error:
        if sys.stdout.isatty() and not sys.stderr.isatty():
            print(f"kraft: {error}")
        raise UsageError(str(error)) from None


def add_to(cli: typer.Typer) -> None:
    """Hang the commands into the tree."""
    cli.command()(up)
    cli.command()(link)
