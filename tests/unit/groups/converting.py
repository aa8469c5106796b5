"""What makes a classic group one of the consumer protocol, and what its members say."""

from __future__ import annotations

import struct

from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from metadata_quorum.foundation.primitives import string

BEAT = ConsumerHeartbeat(
    "g", "new", 0, None, rebalance_timeout_ms=1000, subscribed_topic_names=("a",), owned={}
)


def subscription(topics: int, of: str = "") -> bytes:
    names = b"".join(string(f"{number:x}{of}") for number in range(topics))
    return struct.pack(">hi", 0, topics) + names + struct.pack(">i", -1)
