"""As much of a controller, and of the broker's way to it, as a forwarded request meets."""

from __future__ import annotations

import asyncio

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, Message
from tests.unit.net.harness import Running


class Controller:
    """As much of the active controller as forwarding looks at."""

    def __init__(self, *, is_active: bool) -> None:
        self.is_active = is_active


class ToController:
    """The broker's way to the controller: one connection to it."""

    def __init__(self, controller: Running) -> None:
        self._controller = controller

    async def request(self, api_key: ApiKey, version: int, fields: Fields) -> Message:
        client = await self._controller.client()
        try:
            return await client.request(api_key, version, fields)
        finally:
            client.close()


class ToNobody:
    """The broker's way to a controller that does not answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.called_off = 0

    async def request(self, api_key: ApiKey, version: int, fields: Fields) -> Message:
        self.asked += 1
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            self.called_off += 1
