"""Links through a real Toxiproxy: each fault does what it says, to one direction, and is healed.

First with plain sockets in place of the nodes' listeners, then with real nodes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.live.link_faults import BadFault, LinkFault
from chaos.live.links import Links
from chaos.live.toxiproxy import run_beside
from chaos.live.wiring import Wiring
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from tests.support.waiting import PATIENCE_S, wait_until


class Wires:
    """Two nodes of which only the listeners are real, and a client."""

    def __init__(self, directory: Path, take_ports: Callable[[int], list[int]]) -> None:
        self.local = LocalCluster.create(directory, nodes=2, ports=take_ports(6))
        wiring = Wiring.plan(list(self.local.nodes.values()), 1, take_ports)
        doors = {link.upstream for link in wiring.links}
        self._listeners = {port: socket.create_server((HOST, port)) for port in doors}
        run_beside(self.local, wiring.api_port, [link.proxy for link in wiring.links])
        self.links = Links(wiring)
        self._open: list[socket.socket] = []

    def dial(self, source: int | str, target: int) -> tuple[socket.socket, socket.socket]:
        """A new connection through the first link: the end of who dialled, and the other end."""
        link = self.links.wiring.between(source, target)[0]
        near = socket.create_connection((HOST, link.listen), timeout=PATIENCE_S)
        self._listeners[link.upstream].settimeout(PATIENCE_S)
        far, _ = self._listeners[link.upstream].accept()
        far.settimeout(PATIENCE_S)
        self._open += (near, far)
        return near, far

    def calm(self) -> None:
        self.links.heal_all()
        for each in self._open:
            each.close()
        self._open.clear()

    def close(self) -> None:
        self.calm()
        self.links.close()
        for listener in self._listeners.values():
            listener.close()
        self.local.close()


@pytest.fixture(scope="module")
def _wires(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[Wires]:
    wires = Wires(tmp_path_factory.mktemp("wires"), free_ports)
    yield wires
    wires.close()


@pytest.fixture
def wires(_wires: Wires) -> Iterator[Wires]:
    yield _wires
    _wires.calm()


def hears(end: socket.socket, count: int) -> bytes:
    heard = b""
    while len(heard) < count and (piece := end.recv(count - len(heard))):
        heard += piece
    return heard


def to_the_end(end: socket.socket) -> bytes:
    """All that it hears until the connection ends."""
    heard = b""
    while piece := end.recv(65_536):
        heard += piece
    return heard


def seconds(speaker: socket.socket, listener: socket.socket, said: bytes) -> float:
    """From before it is said until it is heard: a busy machine makes it longer, never shorter."""
    began = time.monotonic()
    speaker.sendall(said)
    assert hears(listener, len(said)) == said
    return time.monotonic() - began


@pytest.mark.row("C1")
def test_a_cut_is_one_way_on_both_sides_links(wires: Wires) -> None:
    """What 2 says does not reach 1, whoever had connected; what 1 says reaches 2."""
    two, one = wires.dial(2, 1)
    one_dialled, two_accepted = wires.dial(1, 2)
    wires.links.cut(2, 1)
    two.sendall(b"lost")
    two_accepted.sendall(b"lost")
    one.sendall(b"heard")
    one_dialled.sendall(b"heard")
    assert hears(two, 5) == hears(two_accepted, 5) == b"heard"
    # A connection made now is as deaf; it is not refused.
    late_two, late_one = wires.dial(2, 1)
    late_two.sendall(b"lost")
    wires.links.heal(2, 1)
    # Healed, the connections that lost something end. Nothing of it ever came through.
    assert to_the_end(one) == to_the_end(one_dialled) == to_the_end(late_one) == b""
    two, one = wires.dial(2, 1)
    two.sendall(b"again")
    assert hears(one, 5) == b"again"


@pytest.mark.row("C1")
def test_a_client_can_be_deaf_or_mute_to_one_node(wires: Wires) -> None:
    client, node = wires.dial("c0", 1)
    wires.links.cut(1, "c0")
    client.sendall(b"heard")
    assert hears(node, 5) == b"heard"
    node.sendall(b"lost")
    wires.links.heal(1, "c0")
    assert to_the_end(client) == b""
    other, node = wires.dial("c0", 2)
    wires.links.cut("c0", 2)
    node.sendall(b"heard")
    assert hears(other, 5) == b"heard"


@pytest.mark.row("C1")
def test_slow_in_one_direction(wires: Wires) -> None:
    two, one = wires.dial(2, 1)
    wires.links.slow(2, 1, 2000, 50)
    assert seconds(two, one, b"slow") > 1.9
    # Which is slow takes that long every time; a machine that stands still does so once.
    wait_until(lambda: seconds(one, two, b"quick") < 1.9, "the other direction is quick")
    wires.links.heal(2, 1)
    wait_until(lambda: seconds(two, one, b"healed") < 1.9, "the same connection is, and nothing was lost")


@pytest.mark.row("C1")
def test_bandwidth_and_slices(wires: Wires) -> None:
    two, one = wires.dial(2, 1)
    wires.links.bandwidth(2, 1, 100)
    assert seconds(two, one, bytes(60_000)) > 0.4
    wires.links.heal(2, 1)
    wires.links.slice(2, 1, 1, 0, 20_000)
    assert seconds(two, one, b"torn to bits") > 0.2
    assert [str(fault) for fault in wires.links.active()] == ["slice 2>1 1B 0B 20ms"]


@pytest.mark.row("C1")
def test_connections_that_end(wires: Wires) -> None:
    two, one = wires.dial(2, 1)
    wires.links.limit(2, 1, 7)
    two.sendall(b"limited to seven")
    assert to_the_end(one) == b"limited"
    wires.links.heal(2, 1)

    wires.links.timeout(2, 1, 300)
    two, one = wires.dial(2, 1)
    two.sendall(b"lost")
    assert to_the_end(one) == to_the_end(two) == b""
    wires.links.heal(2, 1)

    wires.links.reset(2, 1)
    two, one = wires.dial(2, 1)
    two.sendall(b"x")
    for end in (two, one):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    wires.links.heal(2, 1)

    wires.links.slow_close(2, 1, 500)
    two, one = wires.dial(2, 1)
    two.sendall(b"last words")
    began = time.monotonic()
    two.close()
    assert hears(one, 10) == b"last words"
    assert to_the_end(one) == b""
    assert time.monotonic() - began > 0.3


@pytest.mark.row("C1")
def test_down_refuses_those_who_dial_that_way(wires: Wires) -> None:
    two, one = wires.dial(2, 1)
    one_dialled, two_accepted = wires.dial(1, 2)
    wires.links.down(2, 1)
    assert to_the_end(two) == to_the_end(one) == b""
    with pytest.raises(ConnectionRefusedError):
        wires.dial(2, 1)
    one_dialled.sendall(b"the other link")
    assert hears(two_accepted, 14) == b"the other link"
    assert wires.links.active() == [LinkFault("down", 2, 1)]
    wires.links.heal(2, 1)
    two, one = wires.dial(2, 1)
    two.sendall(b"up")
    assert hears(one, 2) == b"up"


@pytest.mark.row("C1")
def test_faults_of_one_link_stand_side_by_side(wires: Wires) -> None:
    links = wires.links
    for text in ("slow 2-1 100ms", "slow 2>1 300ms", "limit 2>1 4B", "bandwidth 2>1 1KB/s", "cut c0>2"):
        links.apply(LinkFault.parse(text))
    texts = ["bandwidth 2>1 1KB/s", "cut c0>2", "limit 2>1 4B", "slow 1>2 100ms", "slow 2>1 300ms"]
    assert [str(fault) for fault in links.active()] == texts
    two, one = wires.dial(2, 1)
    began = time.monotonic()
    two.sendall(b"four of them")
    assert to_the_end(one) == b"four"
    assert time.monotonic() - began > 0.2
    links.remove(LinkFault.parse("slow 2>1 300ms"))
    links.heal("c0", 2)
    texts = [text for text in texts if text not in ("cut c0>2", "slow 2>1 300ms")]
    assert [str(fault) for fault in links.active()] == texts
    links.heal_all()
    assert links.active() == []


def test_a_partition_leaves_ways_within_a_group(wires: Wires) -> None:
    wires.links.partition([[1, "c0"], [2]])
    assert {str(fault) for fault in wires.links.active()} == {"cut 1>2", "cut 2>1", "cut c0>2", "cut 2>c0"}
    wires.links.heal_all()
    wires.links.isolate(2)
    assert {str(fault) for fault in wires.links.active()} == {"cut 1>2", "cut 2>1"}


def test_what_cannot_be_done_is_said(wires: Wires) -> None:
    with pytest.raises(BadFault, match="2>7: there is no such link"):
        wires.links.cut(2, 7)
    with pytest.raises(BadFault, match="1 opens no connection to c0"):
        wires.links.down(1, "c0")
    assert wires.links.active() == []
