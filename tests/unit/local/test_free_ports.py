"""Free ports of the loopback: nobody else gets them, and the nodes for which they were chosen do."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from kraft.local.free_ports import FIRST_PORT, HOST, LAST_PORT, PARTS, Ports, kept

UNUSED = PARTS - 1
"""The part from which no worker takes any: what is given back there stays free."""


def is_free(port: int) -> bool:
    """Whether somebody else can have it."""
    with contextlib.suppress(OSError), kept(port):
        return True
    return False


def test_ports_differ_and_are_given_to_nobody_else() -> None:
    with Ports() as ports:
        taken = ports(20) + ports(20)
        assert len(set(taken)) == 40
        assert not any(map(is_free, taken))


def test_its_own_node_listens_there_again_and_again() -> None:
    with Ports() as ports:
        (port,) = ports(1)
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, port))
            with socket.create_server((HOST, port)), socket.create_connection((HOST, port)):
                assert not is_free(port)
            assert not is_free(port)


def test_what_is_given_back_is_free() -> None:
    with Ports(UNUSED) as ports:
        taken = ports(3)
    assert all(map(is_free, taken))


def test_parts_have_no_port_in_common() -> None:
    size = (LAST_PORT - FIRST_PORT) // PARTS
    for part in (0, 1, PARTS - 1):
        with Ports(part) as ports:
            assert {(port - FIRST_PORT) // size for port in ports(10)} == {part}


def test_of_two_that_want_a_port_at_once_one_gets_it() -> None:
    def try_all(wanted: list[int]) -> list[socket.socket]:
        mine = []
        for port in wanted:
            with contextlib.suppress(OSError):
                mine.append(kept(port))
        return mine

    with Ports(UNUSED) as ports:
        wanted = ports(50)
    with ThreadPoolExecutor(8) as threads, contextlib.ExitStack() as kept_by_any:
        found = []
        for mine in threads.map(try_all, [wanted] * 8):
            found += [kept_by_any.enter_context(each).getsockname()[1] for each in mine]
        assert sorted(found) == sorted(wanted)


def test_where_too_few_are_free_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.local.free_ports.LAST_PORT", FIRST_PORT + 7)
    with Ports() as ports, pytest.raises(OSError, match="no 9 free ports"):
        ports(9)
