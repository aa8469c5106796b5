"""What rows must look like to be written, asked before there are any."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark_connector.errors import SinkError
from spark_connector.producing import Columns, Digest
from spark_connector.sink import check_columns

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


def test_all_columns() -> None:
    check_columns(
        schema(
            key=BinaryType(), value=StringType(), headers=ArrayType(HEADER), topic=StringType(),
            partition=IntegerType(), other=LongType(),
        ),
        None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        ({"val": StringType()}, "t", "required column 'value' is missing"),
        ({"value": StringType()}, None, "'topic' is required"),
        ({"value": IntegerType()}, "t", "'value' is of type int"),
        ({"value": StringType(), "key": IntegerType()}, "t", "'key' is of type int"),
        (
            {"value": StringType(), "headers": ArrayType(StringType())},
            "t",
            "'headers' is of type array<string>",
        ),
        ({"value": StringType(), "partition": LongType()}, "t", "'partition' is of type bigint"),
    ],
)
def test_what_cannot_be_written(columns: dict[str, object], topic: str | None, says: str) -> None:
    with pytest.raises(SinkError, match=says):
        check_columns(schema(**columns), topic)


def test_two_columns_of_one_name() -> None:
    """Only those that are written matter."""
    twice = [StructField(name, StringType()) for name in ("value", "other", "other")]
    check_columns(StructType(twice), "t")
    with pytest.raises(SinkError, match="more than one column 'value'"):
        check_columns(StructType([*twice, twice[0]]), "t")


def test_a_row_without_topic() -> None:
    with pytest.raises(SinkError, match="KAFKA_NULL_TOPIC_IN_DATA"):
        Columns(pa.record_batch({"value": ["v", "w"], "topic": ["t", None]}), None)


def digest(**columns: list[object]) -> int:
    found = Digest()
    for row in range(len(columns["value"])):  # however rows are cut into batches
        one = pa.record_batch({name: [values[row]] for name, values in columns.items()})
        found.add(Columns(one, None if "topic" in columns else "t"))
    whole = Digest()
    whole.add(Columns(pa.record_batch(columns), None if "topic" in columns else "t"))
    assert found.value == whole.value
    return found.value


def test_a_digest_distinguishes_rows_but_not_their_order() -> None:
    rows = digest(key=["a", "b", None], value=["1", "2", "3"])
    assert digest(key=["b", None, "a"], value=["2", "3", "1"]) == rows
    others = [
        digest(key=["a", "b", ""], value=["1", "2", "3"]),
        digest(key=["b", "a", None], value=["1", "2", "3"]),
        digest(key=["a1", "b", None], value=["", "2", "3"]),
        digest(key=["a", "b", None], value=["1", "2", None]),
        digest(key=["a", "b", None], value=["1", "2", "3"], partition=[0, 1, 0]),
        digest(key=["a", "b", None], value=["1", "2", "3"], partition=[1, 0, 0]),
        digest(key=["a", "b", None], value=["1", "2", "3"], topic=["t", "u", "t"]),
    ]
    assert len({rows, *others}) == 1 + len(others)
