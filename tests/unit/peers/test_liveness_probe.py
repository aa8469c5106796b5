"""Refused at the door: the process is dead. Anything else proves nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from kraft.net.client import Address
from kraft.peers.liveness_probe import LivenessProbe, process_has_ended


async def _served(port: int, patience_s: float) -> bool:
    loop = asyncio.get_running_loop()
    return await process_has_ended(loop, Address("127.0.0.1", port), patience_s)


def test_nobody_listens(free_ports: Callable[[int], list[int]]) -> None:
    (port,) = free_ports(1)
    assert asyncio.run(_served(port, 10.0))


def test_somebody_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert not asyncio.run(_served(listener.getsockname()[1], 0.1))


def test_an_address_that_is_none_proves_nothing() -> None:
    async def probe() -> bool:
        return await process_has_ended(asyncio.get_running_loop(), Address("a..b", 9092), 10.0)

    assert not asyncio.run(probe())


def test_a_listener_that_closes_while_we_call() -> None:
    """A process that dies slowly: the first calls are still accepted."""

    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        gone: list[int] = []
        probed = asyncio.Event()

        def on_gone(broker_id: int) -> None:
            gone.append(broker_id)
            probed.set()

        address = Address("127.0.0.1", listener.getsockname()[1])
        calls = LivenessProbe(loop, lambda broker_id: address, on_gone, 10.0)
        calls.probe(3)
        calls.probe(3)  # the second broken connection of one death
        await asyncio.sleep(0)
        listener.close()
        await probed.wait()
        await calls.close()
        return gone

    assert asyncio.run(run()) == [3]
