"""What the oracle of replicas takes for the same."""

from __future__ import annotations

from chaos.simulator.oracles.replicas import last_records
from data_plane.log.aborted import AbortedTransaction
from metadata_quorum.foundation.batch import Record, encode_batch


def test_what_was_aborted_is_no_last_record() -> None:
    """The cleaner of one replica has removed it, and another's not yet."""
    kept = encode_batch([Record(value=b"kept", key=b"k")], base_offset=0)
    aborted = encode_batch(
        [Record(value=b"aborted", key=b"k")],
        base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True,
    )  # fmt: skip
    transaction = AbortedTransaction(producer_id=7, first_offset=1, last_offset=2, last_stable_offset=3)
    assert last_records(kept + aborted, [transaction]) == last_records(kept, []) == {b"k": (0, b"kept")}
    assert last_records(kept + aborted, []) == {b"k": (1, b"aborted")}
