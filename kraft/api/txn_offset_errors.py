"""TxnOffsetCommit: errors in the words of the request's version. The transaction coordinator's pass through
`as_group_coordinator`, all of them through `in_words_of`.
"""

from __future__ import annotations

from typing import Final

from kraft.broker.txn_verification import RETRIABLE
from metadata_quorum.foundation.errors import ErrorCode

_FIRST_TO_WAIT_FOR_LOAD: Final = 2
"""Clients of older versions do not try again after COORDINATOR_LOAD_IN_PROGRESS."""
_FIRST_TO_SAY_ABORTABLE: Final = 4
"""Clients of older versions get INVALID_TXN_STATE in place of TRANSACTION_ABORTABLE."""
FIRST_TO_ADD: Final = 5
"""From here on a group joins the transaction by being committed to (transaction.version 2)."""


def as_group_coordinator(code: ErrorCode, version: int) -> ErrorCode:
    """The transaction coordinator's error, as the group coordinator reports it to the client."""
    if code in RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_TO_ADD):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # the client retries at the same coordinator
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_TO_SAY_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def in_words_of(version: int, code: ErrorCode) -> ErrorCode:
    """The error of the group coordinator, as clients of that version know it."""
    is_final = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_TO_WAIT_FOR_LOAD
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_final else code
