"""What the sink's task refuses, and its back-pressure: what one worker holds while nobody acknowledges."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kraft.local.free_ports import HOST
from spark_connector.errors import SinkError
from spark_connector.librdkafka import producer_config
from spark_connector.producing import Columns, WriteTask

BUFFER_BYTES = 4_000_000
VALUE_BYTES = 1_000
ROWS = 500


def test_a_silent_broker_holds_rows_back() -> None:
    """They are taken as far as the buffer reaches; then the task waits, and ends when time is up."""
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield pa.record_batch({"value": [bytes(VALUE_BYTES)] * ROWS})

    with socket.create_server((HOST, 0)) as silent:
        config = producer_config(
            {
                "bootstrap.servers": f"{HOST}:{silent.getsockname()[1]}",
                "buffer.memory": str(BUFFER_BYTES),
                "delivery.timeout.ms": "1000",
                "log_level": "0",
            }
        )
        with pytest.raises(SinkError, match="KAFKA_WRITE_FAILED"):
            WriteTask(config, "t").run(batches())
    assert taken * ROWS * VALUE_BYTES <= BUFFER_BYTES + 2 * ROWS * VALUE_BYTES


def test_a_partition_below_0_is_none() -> None:
    """To librdkafka -1 is the partitioner's choice; Java's producer refuses it."""
    rows = pa.record_batch({"value": [b"a", b"b"], "partition": pa.array([None, 0], pa.int32())})
    assert Columns(rows, "t").partitions == [None, 0]
    wrong = pa.record_batch({"value": [b"a", b"b"], "partition": pa.array([0, -1], pa.int32())})
    with pytest.raises(SinkError, match="KAFKA_INVALID_PARTITION_IN_DATA"):
        Columns(wrong, "t")
