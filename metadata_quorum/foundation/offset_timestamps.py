"""Timestamps with a meaning of their own in ListOffsets (Kafka's ListOffsetsRequest)."""

from __future__ import annotations

from typing import Final

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
