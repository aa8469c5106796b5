"""The client of tests that ask a node which died and came back since they asked it last."""

from __future__ import annotations

import socket

from kraft.local.free_ports import HOST
from tests.support.clients.wire_client import Wire


def test_a_connection_whose_other_end_has_gone_is_not_used_again() -> None:
    with socket.create_server((HOST, 0)) as listener, Wire() as wire:
        port = listener.getsockname()[1]
        first = wire.client(port)
        node, _ = listener.accept()
        assert wire.client(port) is first
        node.close()
        assert wire.client(port) is not first
