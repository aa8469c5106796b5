"""Decoding alone, rows per second of one core: `python -m benchmarks.spark_decode`.

Batches as producers make them go through the connector's decoder to Arrow, with all columns and the check of
the CRC; no network, no Spark. Values are random, but half of each repeats where a codec is measured, so
that compression finds something. The figures behind docs/PERFORMANCE.md's on the connector.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.compression import CompressionType
from spark_connector.decode import Decoder, whole_batches

ANSWER_BYTES: Final = 8 << 20
REPEATS: Final = 7
NOW_MS: Final = 1_700_000_000_000


@dataclass(frozen=True)
class AnswerShape:
    """What a topic holds."""

    name: str
    value_bytes: int
    spread_bytes: int = 0
    """Values are up to so much shorter or longer."""
    rows: int = 8_000
    """In a batch."""
    key_bytes: int = 0
    headers: int = 0
    codec: CompressionType = CompressionType.NONE


SHAPES: Final = (
    AnswerShape("100 B", 100),
    AnswerShape("100 B, lengths vary", 100, spread_bytes=50),
    AnswerShape("100 B, batches of 16 KiB", 100, spread_bytes=50, rows=150),
    AnswerShape("100 B, keys", 100, key_bytes=16),
    AnswerShape("100 B, keys, 2 headers", 100, key_bytes=16, headers=2),
    AnswerShape("100 B, keys, gzip", 100, key_bytes=16, codec=CompressionType.GZIP),
    AnswerShape("100 B, keys, snappy", 100, key_bytes=16, codec=CompressionType.SNAPPY),
    AnswerShape("100 B, keys, lz4", 100, key_bytes=16, codec=CompressionType.LZ4),
    AnswerShape("100 B, keys, zstd", 100, key_bytes=16, codec=CompressionType.ZSTD),
    AnswerShape("1 KiB", 1_024, rows=1_000),
    AnswerShape("1 KiB, batches of 16 KiB", 1_024, rows=16),
)


def answer_of(shape: AnswerShape) -> tuple[bytes, int]:
    """A Fetch answer's bytes and how many rows are in it."""
    rng = random.Random(1)
    repeated = b"0123456789abcdef" * (shape.value_bytes // 16)

    def record(number: int) -> Record:
        size = shape.value_bytes + rng.randint(-shape.spread_bytes, shape.spread_bytes)
        plain = size // 2 if shape.codec else 0
        return Record(
            timestamp=NOW_MS + number // 10,
            key=rng.randbytes(shape.key_bytes) if shape.key_bytes else None,
            value=repeated[:plain] + rng.randbytes(size - plain),
            headers=tuple((f"name-{each}", b"a value") for each in range(shape.headers)),
        )

    answer = bytearray()
    rows = 0
    while len(answer) < ANSWER_BYTES:
        records = [record(number) for number in range(shape.rows)]
        answer += encode_batch(records, base_offset=rows, compression=shape.codec)
        rows += shape.rows
    return bytes(answer), rows


def cpu_seconds(answer: bytes, shape: AnswerShape) -> float:
    """Of the best of some rounds."""
    decoder = Decoder("flights", 0, include_headers=shape.headers > 0)
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        for _batch in decoder.decode(whole_batches(memoryview(answer)), 0, 1 << 62):
            pass
        taken.append(time.process_time() - began)
    return min(taken)


def main() -> None:
    table = Table("records", "million rows/s", "MB/s as fetched")
    for shape in SHAPES:
        answer, rows = answer_of(shape)
        seconds = cpu_seconds(answer, shape)
        table.add_row(shape.name, f"{rows / seconds / 1e6:.2f}", f"{len(answer) / seconds / 1e6:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
