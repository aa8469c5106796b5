"""Which broker is asked next, where any of them could answer: each in its turn, so that one that is cut off
from the others does not mislead us for long. One that has let us wait in vain comes last: it may be a
machine that is gone, and `bootstrap.servers` names it for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraft.net.client import Address

SILENT_FOR_S: Final = 30.0
"""Then it gets another chance."""


class BrokerTurns:
    """Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._asked = 0
        self._silent_at: dict[Address, float] = {}

    def among(self, brokers: Iterable[Address], now: float) -> list[Address]:
        """All of them, and the first is another one each time."""
        addresses = list(dict.fromkeys(brokers))
        self._asked += 1
        first = self._asked % len(addresses)
        turn = addresses[first:] + addresses[:first]
        return sorted(turn, key=lambda each: self.is_silent_since(now - SILENT_FOR_S, each))

    def waited_in_vain(self, broker: Address, now: float) -> None:
        self._silent_at[broker] = now

    def is_silent_since(self, then: float, broker: Address) -> bool:
        """Whether somebody has waited for it in vain since then."""
        return self._silent_at.get(broker, float("-inf")) >= then
