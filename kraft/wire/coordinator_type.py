"""Whose coordinator a FindCoordinator request looks for: Kafka's FindCoordinatorRequest.CoordinatorType."""

from __future__ import annotations

from enum import IntEnum


class CoordinatorType(IntEnum):
    """The `key_type` of the request: what its keys name."""

    GROUP = 0
    TRANSACTION = 1
