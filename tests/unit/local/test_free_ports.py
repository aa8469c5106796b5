"""Free ports of the loopback."""

from __future__ import annotations

import random
import socket

import pytest

from kraft.local.free_ports import HOST, free_ports


def test_ports_differ_and_can_be_bound() -> None:
    ports = free_ports(9, random.Random(1))
    assert len(set(ports)) == 9
    for port in ports:
        with socket.socket() as listener:
            listener.bind((HOST, port))


def test_a_taken_port_is_passed_over() -> None:
    (port,) = free_ports(1, random.Random())
    with socket.socket() as holder:
        holder.bind((HOST, port))
        with pytest.raises(OSError, match="no 1 free ports"):
            free_ports(1, random.Random(), port, port)
