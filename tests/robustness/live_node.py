"""A running node that tests send bad input to; afterwards it must still serve everybody else."""

from __future__ import annotations

from typing import Final

import psutil
from confluent_kafka import Producer

from kraft.local.free_ports import HOST
from tests.robustness.nodes import NodeFiles
from tests.robustness.traffic import QUIET, VALUE
from tests.support.waiting import PATIENCE_S

MIB: Final = 1024 * 1024
TOPIC: Final = "frames"


class LiveNode:
    """A node, its process, and how a stock client finds it."""

    def __init__(self, node: NodeFiles, pid: int) -> None:
        self.node = node
        self.process = psutil.Process(pid)
        self.port = node.client_port

    @property
    def rss(self) -> int:
        return int(self.process.memory_info().rss)

    def fill(self, records: int) -> None:
        """Give the topic some data to read."""
        producer = Producer({"bootstrap.servers": f"{HOST}:{self.port}", **QUIET})
        for _ in range(records):
            producer.produce(TOPIC, VALUE)
        assert producer.flush(PATIENCE_S) == 0

    def serves_stock_clients(self) -> None:
        """One record in, the topic listed; no traceback was printed so far."""
        producer = Producer({"bootstrap.servers": f"{HOST}:{self.port}", **QUIET})
        offsets: list[int | None] = []
        producer.produce(TOPIC, VALUE, on_delivery=lambda error, message: offsets.append(message.offset()))
        assert producer.flush(PATIENCE_S) == 0
        assert offsets != [None]
        assert self.process.is_running()
        assert "Traceback" not in self.node.said, self.node.said
