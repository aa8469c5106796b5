"""Which addresses a listener with TLS listens at."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from kraft.net import acceptor
from kraft.net.acceptor import listening_sockets

pytestmark = pytest.mark.row("U4")


class SocketWithoutIPv6(socket.socket):
    """As on a machine that has none."""

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        super().__init__(family, kind, protocol)


async def listen(host: str | None) -> list[int]:
    """The families of its sockets, which are closed."""
    made = await listening_sockets(asyncio.get_running_loop(), host, 0)
    families = [int(each.family) for each in made]
    for each in made:
        each.close()
    return families


def test_a_machine_without_ipv6_listens_at_all_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(acceptor.socket, "socket", SocketWithoutIPv6)
        assert await listen(None) == [int(socket.AF_INET)]
        with pytest.raises(OSError, match="Address family not supported"):
            await listen("::1")
        monkeypatch.undo()

    asyncio.run(test())
