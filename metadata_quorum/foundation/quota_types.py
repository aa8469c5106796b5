"""What may be limited, and for whom: the words of client quotas, as in Kafka's metadata log.

Read by the controller, which decides what may be set, by the brokers, which keep to it, and by the APIs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

QuotaEntityKey = tuple[tuple[str, str | None], ...]
"""Types and names, sorted by type; a name of None is the default, for all who have no quota of their own."""


class QuotaType(StrEnum):
    """What may be limited."""

    PRODUCED_BYTES = "producer_byte_rate"
    FETCHED_BYTES = "consumer_byte_rate"
    REQUEST_TIME = "request_percentage"
    MUTATIONS = "controller_mutation_rate"
    CONNECTIONS = "connection_creation_rate"
