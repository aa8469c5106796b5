"""Settings and topics that several scenarios share. Limits are shorter than Kafka's where a scenario would
otherwise only wait for them; every bound is relative to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chaos.workload import TopicSpec

SHORT_LAG: Final[Mapping[str, str]] = {"replica.lag.time.max.ms": "3000"}
"""L = 3 s."""
SHORT_SESSION: Final[Mapping[str, str]] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""S = 3 s."""
QUICK_TRANSACTIONS: Final[Mapping[str, str]] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
}
"""Those whose time is over are soon found; a new cluster is soon ready for them."""
ALL: Final = TopicSpec("all", partitions=1)
IDEMPOTENT: Final = TopicSpec("all", partitions=1, idempotent=True)
ONE: Final = TopicSpec("one", partitions=1, acks=1)
