"""Transactions in a log: a record of one, and the marker that ends it."""

from __future__ import annotations

from data_plane.log.log import UnifiedLog
from data_plane.log.validation import AppendOrigin
from metadata_quorum.foundation.batch import encode_end_txn_marker
from tests.support.logs import NOW_MS, lead


def send(log: UnifiedLog, producer: int, sequence: int, value: bytes = b"x") -> int:
    return lead(
        log, value, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
    )


def end_transaction(log: UnifiedLog, producer: int, *, commit: bool, producer_epoch: int = 0) -> int:
    """The marker's offset."""
    marker = encode_end_txn_marker(
        commit=commit,
        coordinator_epoch=1,
        producer_id=producer,
        producer_epoch=producer_epoch,
        timestamp=NOW_MS,
    )
    info = log.append_as_leader(
        bytearray(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
    )
    return info.first_offset
