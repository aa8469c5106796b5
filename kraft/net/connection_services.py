"""What the connections of a server share. server.py makes it; server_connection.py uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kraft.monitoring.request_metrics import RequestMetrics
from kraft.net.connections import Connections
from kraft.net.peer import Peer, Prepare, Serve
from kraft.net.read_turns import ReadTurns
from kraft.net.reply_turns import ReplyTurns
from kraft.net.server_memory import ServerMemory
from kraft.net.turn_budget import TurnBudget
from kraft.net.unread import Unread

OnClosed = Callable[[Peer, bool], None]
"""Called when a connection is gone; True where the other end closed or lost it, False where we did."""
OnOvertaken = Callable[[Peer], None]
"""Called, perhaps again and again, while an exclusive request waits behind another one on its connection."""


@dataclass(slots=True, kw_only=True)
class ConnectionServices:
    """What all connections of a server share."""

    loop: asyncio.AbstractEventLoop
    serve: Serve
    prepare: Prepare
    is_exclusive: Callable[[int], bool]
    is_in_turn: Callable[[int], bool]
    connections: Connections
    memory: ServerMemory
    unread: Unread
    turn_budget: TurnBudget
    read_turns: ReadTurns
    reply_turns: ReplyTurns
    scratch: memoryview
    """The buffer in which small frames are received."""
    on_closed: OnClosed | None
    on_overtaken: OnOvertaken
    requests: RequestMetrics
