"""A transactional id may have 32 KB in a message, and each is kept for a week."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_plane.coordinator.transactions.records import TransactionRecord, encode
from data_plane.coordinator.transactions.transaction_state_manager import MOST_CHARACTERS
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.transactions.driven_service import CONFIG, MarkerLog, listed, refusal, run, service
from tests.unit.transactions.transaction_driver import EPOCH_MS, TIMEOUT_MS

pytestmark = pytest.mark.row("P4", "P7")

ONE_PARTITION = replace(CONFIG, partitions=1)
LONGEST = "\N{GRINNING FACE}" * MOST_CHARACTERS
LONGER = LONGEST + "x"


def test_no_new_one_is_longer_than_ids_are() -> None:
    async def test() -> None:
        async with service(MemoryLog(), MarkerLog(), config=ONE_PARTITION) as transactions:
            longer = transactions.init_producer_id(LONGER, TIMEOUT_MS, None)
            assert await refusal(longer) is ErrorCode.INVALID_REQUEST
            await transactions.init_producer_id(LONGEST, TIMEOUT_MS, None)
            assert [name for name, _ in await listed(transactions)] == [LONGEST]

    run(test)


def test_one_that_the_log_has_is_served() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log, MarkerLog(), config=ONE_PARTITION) as transactions:
            await transactions.init_producer_id("x", TIMEOUT_MS, None)
            known = replace(await transactions.describe("x"), producer_epoch=3)
            key, value = encode(TransactionRecord(LONGER, known))
            batch = encode_batch([Record(0, EPOCH_MS, key, value)])
            log.append(0, 1, bytearray(batch))
        async with service(log, MarkerLog(), epoch=2, config=ONE_PARTITION) as transactions:
            producer = await transactions.init_producer_id(LONGER, TIMEOUT_MS, None)
            assert producer.epoch == 4

    run(test)
