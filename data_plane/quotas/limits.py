"""Which quota holds for a client: the most specific of what was set, in Apache Kafka's order.

    1  user and client id              4  default user and client id        7  client id
    2  user, default client id         5  default user, default client id   8  default client id
    3  user                            6  default user

Each kind of quota is looked up for itself. All who come under one limit by their user share it (3, 6),
so do all of one client id (7, 8); with both named (1, 2, 4, 5) every pair has its own.
Read from the metadata image; used by client_quotas.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from metadata_quorum.foundation.quota_types import CLIENT_ID, IP, USER, QuotaEntityKey, QuotaType

MAX_REMEMBERED: Final = 4096
"""Clients whose limit is known without looking it up."""
LONGEST_NAME: Final = 256
"""Characters of a client id that is remembered; strangers choose them, of up to 32 KB."""


class QuotaClient(NamedTuple):
    """Who asks: the name of its principal, and what it calls itself."""

    user: str
    client_id: str


class QuotaLimit(NamedTuple):
    """What holds for a client, and with whom it shares it."""

    shared_by: tuple[str | None, str | None]
    """User and client id, of which one may not matter."""
    value: float


class QuotaLimits:
    """What was set for one kind of quota."""

    __slots__ = ("_by_entity", "_found")

    def __init__(self, by_entity: dict[QuotaEntityKey, float]) -> None:
        self._by_entity = by_entity
        self._found: dict[QuotaClient, QuotaLimit | None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_entity)

    def change(self, entity: QuotaEntityKey, limit: float | None) -> None:
        """None: it has no limit any more."""
        self._found.clear()
        if limit is None:
            self._by_entity.pop(entity, None)
        else:
            self._by_entity[entity] = limit

    def of_client(self, client: QuotaClient) -> QuotaLimit | None:
        """None: as much as it likes."""
        try:
            return self._found[client]
        except KeyError:
            limit = self._look_up(client)
            if len(client.client_id) <= LONGEST_NAME:
                if len(self._found) >= MAX_REMEMBERED:  # client ids come and go
                    self._found.clear()
                self._found[client] = limit
            return limit

    def _look_up(self, client: QuotaClient) -> QuotaLimit | None:
        for entity, shared_by in _by_precedence(client):
            value = self._by_entity.get(entity)
            if value is not None:
                return QuotaLimit(shared_by, value)
        return None

    def of_address(self, address: str) -> float | None:
        own = self._by_entity.get(((IP, address),))
        return self._by_entity.get(((IP, None),)) if own is None else own


def limits_of(quotas: Mapping[QuotaEntityKey, Mapping[str, float]]) -> dict[QuotaType, QuotaLimits]:
    """The metadata image's quotas, kind by kind; all kinds are there."""
    return {
        kind: QuotaLimits({entity: values[kind] for entity, values in quotas.items() if kind in values})
        for kind in QuotaType
    }


def _by_precedence(client: QuotaClient) -> Iterator[tuple[QuotaEntityKey, tuple[str | None, str | None]]]:
    user, client_id = client
    for of_user in (user, None):
        for of_client in (client_id, None):
            yield ((CLIENT_ID, of_client), (USER, of_user)), (user, client_id)
        yield ((USER, of_user),), (user, None)
    for of_client in (client_id, None):
        yield ((CLIENT_ID, of_client),), (None, client_id)
