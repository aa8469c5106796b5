"""How large a number on a command line may be: what the requests and librdkafka have room for."""

from __future__ import annotations

from typing import Final

MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MAX_PARTITIONS: Final = 100_000
MAX_REPLICAS: Final = 10_000
"""Of a topic, and of a partition; librdkafka passes on no more."""
