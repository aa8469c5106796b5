"""What the sink's task refuses, and its back-pressure: what one worker holds while nobody acknowledges."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from kraft.local.free_ports import HOST
from spark_connector.errors import SinkError
from spark_connector.librdkafka import producer_config
from spark_connector.producing import Columns, WriteTask, write_rows
from spark_connector.transactions import TransactionalTask

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


def test_a_header_without_a_key_is_none() -> None:
    """Java's producer refuses it; to Spark's schema of headers all of it may be null."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

    def headers(*each: object) -> list[object]:
        rows = pa.record_batch({"value": [b"v"], "headers": pa.array([list(each)], kind)})
        return [row[3] for row in Columns(rows, "t")]

    assert headers() == [None]
    assert headers({"key": "k", "value": None}) == [[("k", None)]]
    for wrong in ({"key": None, "value": b"v"}, None):
        with pytest.raises(SinkError, match="KAFKA_NULL_HEADER_KEY_IN_DATA"):
            headers({"key": "k", "value": b"v"}, wrong)


def test_a_name_that_librdkafka_would_cut_is_refused() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    named = [{"key": "a\0b", "value": b"v"}]
    wrong = pa.record_batch({"value": [b"a"], "headers": pa.array([named], kind)})
    with pytest.raises(SinkError, match="KAFKA_INVALID_HEADER_KEY_IN_DATA"):
        list(Columns(wrong, "t"))
    config = producer_config({"bootstrap.servers": f"{HOST}:1", "log_level": "0"})
    with pytest.raises(SinkError, match="KAFKA_WRITE_FAILED"):
        WriteTask(config, None).run(iter([pa.record_batch({"value": [b"a"], "topic": ["t\0x"]})]))


def test_a_row_that_is_not_taken_is_an_error_of_the_sink() -> None:
    rows = pa.record_batch({"value": [bytes(5_000)]})
    config = producer_config({"bootstrap.servers": f"{HOST}:1", "max.request.size": "1000", "log_level": "0"})
    with pytest.raises(SinkError, match=r"KAFKA_WRITE_FAILED\] t: .*Message size too large"):
        WriteTask(config, "t").run(iter([rows]))


class Fenced:
    """A producer that takes rows, and raises when it is flushed."""

    def __init__(self, raised: Exception) -> None:
        self._raised = raised

    def produce(self, *_: object, **__: object) -> None: ...

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        raise self._raised


def test_a_fatal_error_is_one_of_the_sink_also_where_a_callback_fails_by_it() -> None:
    fenced = KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer one", fatal=True))

    by_a_callback = SystemError("a result with an exception set")
    by_a_callback.__cause__ = fenced
    rows = pa.record_batch({"value": [b"v"]})
    for raised in (fenced, by_a_callback):
        producer = Fenced(raised)
        with pytest.raises(SinkError, match=r"\[KAFKA_WRITE_FAILED\] fenced by a newer one"):
            write_rows(producer, [rows], "t")  # type: ignore[arg-type]


def test_the_patience_of_a_transaction_whose_deliveries_have_no_limit() -> None:
    config = {"bootstrap.servers": f"{HOST}:1"}
    for given, seconds in ((None, 120.0), ("0", 120.0), ("5000", 5.0)):
        timeout = {} if given is None else {"message.timeout.ms": given}
        assert TransactionalTask({**config, **timeout}, config, "t").patience_s == seconds
