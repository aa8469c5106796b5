"""Ports of a run: nobody else gets them, and its own nodes do."""

from __future__ import annotations

import random
import socket

import pytest

from chaos.ports import Ports
from kraft.local.free_ports import HOST, free_ports


def test_what_is_taken_is_given_to_nobody_else() -> None:
    with Ports() as ports:
        taken = ports(20) + ports(20)
        assert len(set(taken)) == 40
        port = taken[0]
        with pytest.raises(OSError, match="no 1 free ports"):
            free_ports(1, random.Random(1), port, port)


def test_its_own_node_listens_there_again_and_again() -> None:
    with Ports() as ports:
        (port,) = ports(1)
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, port))
            with socket.create_server((HOST, port)), socket.create_connection((HOST, port)):
                pass


def test_what_is_given_back_is_free() -> None:
    with Ports(part=3) as ports:
        (port,) = ports(1)
    assert free_ports(1, random.Random(1), port, port) == [port]
