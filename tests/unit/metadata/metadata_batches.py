"""Batches of the metadata log for tests, and where the log is."""

from __future__ import annotations

from typing import Final

from metadata_quorum.foundation.batch import Record, encode_batch

DIRECTORY: Final = "/disk/node/__cluster_metadata-0"


def batch(offset: int, count: int = 1, epoch: int = 1, size: int = 10) -> bytes:
    records = [Record(timestamp=5, value=bytes([offset % 256]) * size) for _ in range(count)]
    return encode_batch(records, base_offset=offset, leader_epoch=epoch)
