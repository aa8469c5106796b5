"""What one row of the tables of configuration keys says, and the units that it says it in.

name: type = key(default, why, bounds, how it may change)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
"""Milliseconds, all four."""


class Update(Enum):
    """How a key may change while the node runs, in the words of Kafka's documentation."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


READ_ONLY, PER_BROKER, CLUSTER_WIDE = Update


class Required(Enum):
    """The default of a key that has none."""

    TOKEN = "required"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What a row says besides name, type and default."""

    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    update: Update
    why: str
    secret: bool = False
    """DescribeConfigs leaves its value out."""
    bits: int = 32
    """Of a whole number; Kafka calls one of 64 bits a long."""
    never: float | None = None
    """A number between the bounds that is refused all the same."""


def key(
    default: object,
    why: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    update: Update = READ_ONLY,
    secret: bool = False,
    bits: int = 32,
    never: float | None = None,
) -> Any:
    """One row of a table. Returns Any because the annotation beside it is the type."""
    rule = KeyRule(minimum, maximum, tuple(choices), update, why, secret, bits, never)
    return field(default=default, metadata={"rule": rule})
