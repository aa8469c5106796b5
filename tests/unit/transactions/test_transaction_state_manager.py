"""The rules of one transactional id, request by request."""

from __future__ import annotations

import dataclasses

import pytest

from data_plane.coordinator.state_machine import CoordinatorResult, ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
    decode,
    encode,
)
from data_plane.coordinator.transactions.transaction_state_manager import LAST_EPOCH, TransactionLimits
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.bytecodes import cost
from tests.unit.transactions.transaction_driver import TIMEOUT_MS, TransactionDriver, at_epoch

YEAR_MS = 365 * 24 * 3_600_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
V1, V2 = 0, 2


def begun(driver: TransactionDriver, name: str = "x") -> ProducerIdAndEpoch:
    producer = driver.init(name)
    assert isinstance(producer, ProducerIdAndEpoch)
    return producer


def test_what_is_stored_is_read_again() -> None:
    whole = TransactionMetadata(
        7, 3, 60_000, TransactionState.PREPARE_COMMIT, frozenset({T0, T1, TopicPartition("u", 5)}),
        updated_ms=5, started_ms=4, previous_producer_id=6, next_producer_id=8, next_producer_epoch=0,
        client_version=2,
    )  # fmt: skip
    for value in (whole, TransactionMetadata(7, 0, 1), None):
        record = TransactionRecord("größe", value)
        assert decode(*encode(record)) == record
    key, value = encode(TransactionRecord("x", TransactionMetadata(1, 2, 3)))
    # Kafka's bytes: an empty transaction has null partitions.
    assert key.hex() == "0000000178"
    assert value is not None
    assert value.hex() == "0001" + "0000000000000001" + "0002" + "00000003" + "00" + "00" + "ff" * 16 + "00"
    assert decode(b"\x00\x09\x00\x01x", b"") is None
    head = "0000" + "0000000000000001" + "0002" + "00000003"
    times = "0000000000000005" + "0000000000000004"
    old = bytes.fromhex(head + "01" + "00000001" + "000174" + "00000002" + "0000000000000001" + times)
    known = TransactionMetadata(
        1, 2, 3, TransactionState.ONGOING, frozenset({T0, T1}), updated_ms=5, started_ms=4
    )
    assert decode(key, old) == TransactionRecord("x", known)
    assert decode(key, bytes.fromhex(head + "00" + "ffffffff" + times)) is not None
    for broken in (b"", b"\x00", value[:-3], b"\x00\x05" + value[2:]):
        with pytest.raises(ValueError, match=r"."):
            decode(key, broken)


@pytest.mark.row("P4")
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_from_beginning_to_end(commit: bool) -> None:
    driver = TransactionDriver()
    producer = begun(driver)
    assert driver.add("x", producer, [T0]) is ErrorCode.NONE
    assert driver.add("x", producer, [T1]) is ErrorCode.NONE
    written = len(driver.log)
    assert driver.add("x", producer, [T0]) is ErrorCode.NONE
    assert len(driver.log) == written  # known already
    assert driver.end("x", producer, commit=commit) == producer
    assert driver.end("x", producer, commit=commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add("x", producer, [T0]) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.complete("x").partitions == {T0, T1}
    assert driver.end("x", producer, commit=commit) == producer  # asked again, answered as before
    assert driver.end("x", producer, commit=not commit) is ErrorCode.INVALID_TXN_STATE
    assert driver.add("x", producer, [T0]) is ErrorCode.NONE
    assert driver.state("x").partitions == {T0}


@pytest.mark.row("P4")
def test_every_transaction_of_version_2_has_an_epoch_of_its_own() -> None:
    driver = TransactionDriver()
    first = begun(driver)
    assert driver.add("x", first, [T0], V2) is ErrorCode.NONE
    second = driver.end("x", first, commit=True, version=V2)
    assert second == ProducerIdAndEpoch(first.producer_id, first.epoch + 1)
    assert driver.end("x", first, commit=True, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.complete("x").producer_epoch == second.epoch  # fences late batches of the first
    assert driver.end("x", first, commit=True, version=V2) == second
    assert driver.end("x", first, commit=False, version=V2) is ErrorCode.INVALID_TXN_STATE
    assert driver.end("x", second, commit=True, version=V2) is ErrorCode.INVALID_TXN_STATE
    assert driver.add("x", first, [T0], V2) is ErrorCode.PRODUCER_FENCED
    third = driver.end("x", second, commit=False, version=V2)  # of nothing: what is on its way is fenced
    assert third == ProducerIdAndEpoch(first.producer_id, second.epoch + 1)
    assert driver.complete("x").partitions == frozenset()


@pytest.mark.row("P4")
def test_an_empty_transaction_aborted_while_the_last_one_is_ending_has_to_wait() -> None:
    """franz-go does so at once after a commit; Kafka's PRODUCER_FENCED would end it."""
    driver = TransactionDriver()
    first = begun(driver)
    driver.add("x", first, [T0], V2)
    second = driver.end("x", first, commit=True, version=V2)
    assert isinstance(second, ProducerIdAndEpoch)
    assert driver.end("x", second, commit=False, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete("x")
    third = ProducerIdAndEpoch(second.producer_id, second.epoch + 1)
    assert driver.end("x", second, commit=False, version=V2) == third


@pytest.mark.row("P4")
def test_a_new_incarnation_fences_the_old_one() -> None:
    driver = TransactionDriver()
    old = begun(driver)
    assert driver.add("x", old, [T0]) is ErrorCode.NONE
    assert driver.init("x") is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.end("x", old, commit=True) is ErrorCode.PRODUCER_FENCED
    assert driver.init("x") is ErrorCode.CONCURRENT_TRANSACTIONS
    aborted = driver.complete("x")
    assert aborted.state is TransactionState.PREPARE_ABORT
    assert aborted.producer_epoch == old.epoch + 1
    new = begun(driver)
    assert new == ProducerIdAndEpoch(old.producer_id, old.epoch + 2)
    for attempt in (
        driver.add("x", old, [T0]),
        driver.end("x", old, commit=False),
        driver.end("x", old, commit=False, version=V2),
        driver.init("x", expected=old),
        driver.init("x", expected=ProducerIdAndEpoch(old.producer_id, old.epoch + 1)),
    ):
        assert attempt is ErrorCode.PRODUCER_FENCED


def test_a_former_incarnation_cannot_go_on_after_a_bump_that_was_not_its_own() -> None:
    driver = TransactionDriver()
    old = begun(driver)
    new = begun(driver)
    assert new.epoch == old.epoch + 1
    assert driver.init("x", expected=old) is ErrorCode.PRODUCER_FENCED


@pytest.mark.row("P4")
def test_going_on_after_an_error_bumps_the_epoch_once() -> None:
    driver = TransactionDriver()
    first = begun(driver)
    second = driver.init("x", expected=first)
    assert second == ProducerIdAndEpoch(first.producer_id, first.epoch + 1)
    assert driver.init("x", expected=first) == second  # the answer was lost
    assert driver.add("x", second, [T0]) is ErrorCode.NONE
    assert driver.init("x", expected=first) is ErrorCode.PRODUCER_FENCED  # late: it must abort nothing
    # In the middle of a transaction: that is aborted first, under an epoch that nobody is given.
    assert driver.init("x", expected=second) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.init("x", expected=second) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.complete("x").producer_epoch == second.epoch + 1
    third = ProducerIdAndEpoch(first.producer_id, second.epoch + 2)
    assert driver.init("x", expected=second) == driver.init("x", expected=second) == third


def test_an_id_that_is_forgotten_starts_over() -> None:
    driver = TransactionDriver()
    assert isinstance(driver.init("x", expected=ProducerIdAndEpoch(5, 5)), ProducerIdAndEpoch)
    driver.now_ms += driver.limits.id_expiration_ms
    driver.carry_out(driver.manager.expire(driver.at))
    driver.failover()
    assert driver.end("x", ProducerIdAndEpoch(5, 5), commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert begun(driver).epoch == 0


@pytest.mark.row("P4")
@pytest.mark.parametrize("version", [V1, V2])
def test_epochs_that_run_out_bring_a_new_producer_id(version: int) -> None:
    driver = TransactionDriver()
    last = at_epoch(driver, "x", LAST_EPOCH)
    if version == V1:
        fresh = driver.init("x", expected=last)
        assert isinstance(fresh, ProducerIdAndEpoch)
    else:
        assert driver.add("x", last, [T0], V2) is ErrorCode.NONE
        fresh = driver.end("x", last, commit=True, version=V2)
        assert isinstance(fresh, ProducerIdAndEpoch)
        assert driver.init("x", expected=fresh) is ErrorCode.CONCURRENT_TRANSACTIONS
        marker = driver.complete("x")
        assert (marker.producer_id, marker.producer_epoch) == (last.producer_id, LAST_EPOCH + 1)
        assert driver.end("x", last, commit=True, version=V2) == fresh
    assert fresh.producer_id != last.producer_id
    assert fresh.epoch == 0
    assert driver.init("x", expected=last) == fresh
    assert driver.add("x", fresh, [T0]) is ErrorCode.NONE


@pytest.mark.row("P4")
def test_the_next_transaction_under_a_new_producer_id_waits_for_the_end_of_the_last_one() -> None:
    """Its producer has the new id with the response to EndTxn, and does not wait for the markers."""
    driver = TransactionDriver()
    last = at_epoch(driver, "x", LAST_EPOCH)
    assert driver.add("x", last, [T0], V2) is ErrorCode.NONE
    fresh = driver.end("x", last, commit=True, version=V2)
    assert isinstance(fresh, ProducerIdAndEpoch)
    for _ in range(2):
        assert driver.add("x", fresh, [T0], V2) is ErrorCode.CONCURRENT_TRANSACTIONS
        verified = driver.ask(lambda: driver.manager.verify("x", fresh, [T0], 0, driver.at))
        assert verified is ErrorCode.CONCURRENT_TRANSACTIONS
        assert driver.end("x", fresh, commit=True, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
        driver.failover()
    driver.complete("x")
    assert driver.add("x", fresh, [T0], V2) is ErrorCode.NONE
    assert driver.add("x", last, [T0], V2) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_fence_of_the_last_epoch_is_given_to_nobody() -> None:
    driver = TransactionDriver()
    last = at_epoch(driver, "x", LAST_EPOCH)
    assert driver.add("x", last, [T0]) is ErrorCode.NONE
    assert driver.init("x", expected=last) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.complete("x").producer_epoch == LAST_EPOCH + 1
    fresh = driver.init("x", expected=last)
    assert isinstance(fresh, ProducerIdAndEpoch)
    assert fresh.producer_id != last.producer_id
    assert driver.init("x", expected=last) == fresh


@pytest.mark.row("P4")
@pytest.mark.parametrize("version", [V1, V2])
def test_who_guesses_the_epoch_of_a_fence_begins_and_ends_nothing(version: int) -> None:
    """There is none above it, so the coordinator could not abort what is begun with it."""
    driver = TransactionDriver()
    last = at_epoch(driver, "x", LAST_EPOCH)
    assert driver.add("x", last, [T0]) is ErrorCode.NONE
    driver.now_ms += TIMEOUT_MS + 1
    driver.carry_out(driver.manager.abort_if_timed_out("x", 0, driver.at))
    driver.complete("x")
    guessed = ProducerIdAndEpoch(last.producer_id, LAST_EPOCH + 1)
    assert driver.add("x", guessed, [T0], version) is ErrorCode.PRODUCER_FENCED
    assert driver.end("x", guessed, commit=False, version=version) is ErrorCode.PRODUCER_FENCED
    assert driver.state("x").state is TransactionState.COMPLETE_ABORT
    fresh = driver.init("x", expected=guessed)
    assert isinstance(fresh, ProducerIdAndEpoch)
    assert fresh.producer_id != last.producer_id


@pytest.mark.row("P4")
def test_who_aborts_what_timed_out_in_its_last_epoch_goes_on_with_a_new_producer_id() -> None:
    driver = TransactionDriver()
    last = at_epoch(driver, "x", LAST_EPOCH)
    assert driver.add("x", last, [T0], V2) is ErrorCode.NONE
    driver.now_ms += TIMEOUT_MS + 1
    driver.carry_out(driver.manager.abort_if_timed_out("x", 0, driver.at))
    assert driver.end("x", last, commit=False, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete("x")
    assert driver.end("x", last, commit=True, version=V2) is ErrorCode.INVALID_TXN_STATE
    fresh = driver.end("x", last, commit=False, version=V2)
    assert isinstance(fresh, ProducerIdAndEpoch)
    assert (fresh.producer_id != last.producer_id, fresh.epoch) == (True, 0)
    driver.failover()
    assert driver.end("x", last, commit=False, version=V2) == fresh  # the answer was lost
    assert driver.add("x", fresh, [T0], V2) is ErrorCode.NONE
    assert driver.add("x", last, [T0], V2) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_what_another_coordinator_has_open_in_the_epoch_of_a_fence_is_aborted_all_the_same() -> None:
    driver = TransactionDriver()
    at_epoch(driver, "x", LAST_EPOCH + 1)
    opened = dataclasses.replace(driver.state("x"), state=TransactionState.ONGOING, started_ms=0)
    driver.carry_out(CoordinatorResult([TransactionRecord("x", opened)]))
    driver.now_ms += 1
    assert driver.carry_out(driver.manager.abort_if_timed_out("x", 0, driver.at)) is True
    assert driver.complete("x").producer_epoch == LAST_EPOCH + 1


@pytest.mark.row("P4")
def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    driver = TransactionDriver()
    producer = begun(driver)
    driver.add("x", producer, [T0])
    driver.now_ms += TIMEOUT_MS
    driver.add("x", producer, [T1])  # does not prolong it
    assert list(driver.manager.timed_out(driver.at)) == []
    driver.now_ms += 1
    assert list(driver.manager.timed_out(driver.at)) == ["x"]
    assert driver.carry_out(driver.manager.abort_if_timed_out("x", 0, driver.at)) is True
    assert driver.carry_out(driver.manager.abort_if_timed_out("x", 0, driver.at)) is False
    assert driver.end("x", producer, commit=True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.row("P4")
def test_a_clock_that_is_set_neither_ends_nor_prolongs_a_transaction() -> None:
    driver = TransactionDriver()
    producer = begun(driver)
    driver.add("x", producer, [T0])
    driver.ahead_ms = YEAR_MS
    driver.add("x", producer, [T1])
    assert list(driver.manager.timed_out(driver.at)) == []
    driver.ahead_ms = -driver.now_ms
    driver.now_ms += TIMEOUT_MS + 1
    assert list(driver.manager.timed_out(driver.at)) == ["x"]
    assert driver.carry_out(driver.manager.abort_if_timed_out("x", 0, driver.at)) is True


@pytest.mark.row("P4")
def test_what_a_coordinator_began_whose_clock_was_ahead_has_its_timeout_anew_and_no_more() -> None:
    driver = TransactionDriver()
    producer = begun(driver)
    driver.ahead_ms = YEAR_MS
    driver.add("x", producer, [T0])
    driver.ahead_ms = 0
    driver.failover()
    driver.now_ms += TIMEOUT_MS
    assert list(driver.manager.timed_out(driver.at)) == []
    driver.now_ms += 1
    assert list(driver.manager.timed_out(driver.at)) == ["x"]


@pytest.mark.row("P4")
def test_a_new_coordinator_goes_on_with_the_rest_of_the_timeout() -> None:
    driver = TransactionDriver()
    driver.add("x", begun(driver), [T0])
    driver.now_ms += TIMEOUT_MS - 1
    driver.failover()
    assert list(driver.manager.timed_out(driver.at)) == []
    driver.now_ms += 2
    assert list(driver.manager.timed_out(driver.at)) == ["x"]


@pytest.mark.row("P4")
@pytest.mark.parametrize("version", [V1, V2])
def test_a_producer_may_continue_after_a_timeout_in_an_epoch_above_the_marker_s(version: int) -> None:
    driver = TransactionDriver()
    producer = begun(driver)
    driver.add("x", producer, [T0], version)
    driver.now_ms += TIMEOUT_MS + 1
    assert driver.carry_out(driver.manager.abort_if_timed_out("x", 0, driver.at)) is True
    assert driver.init("x", expected=producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.complete("x").producer_epoch == producer.epoch + 1
    next_one = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 2)
    assert driver.init("x", expected=producer) == driver.init("x", expected=producer) == next_one
    assert driver.add("x", producer, [T0], version) is ErrorCode.PRODUCER_FENCED
    assert driver.add("x", next_one, [T0], version) is ErrorCode.NONE
    assert driver.init("x", expected=producer) is ErrorCode.PRODUCER_FENCED


@pytest.mark.row("P4")
def test_the_timeout_is_that_of_the_producer_that_came_last() -> None:
    """It may be another program by now, or be configured in another way."""
    driver = TransactionDriver()
    begun(driver)
    producer = driver.init("x", timeout_ms=3 * TIMEOUT_MS)
    assert isinstance(producer, ProducerIdAndEpoch)
    driver.failover()
    driver.add("x", producer, [T0])
    driver.now_ms += 3 * TIMEOUT_MS
    assert list(driver.manager.timed_out(driver.at)) == []
    driver.now_ms += 1
    assert list(driver.manager.timed_out(driver.at)) == ["x"]


@pytest.mark.row("P4")
def test_a_leader_asks_what_belongs_to_the_open_transaction() -> None:
    driver = TransactionDriver()
    producer = begun(driver)

    def missing(who: ProducerIdAndEpoch) -> object:
        return driver.ask(lambda: driver.manager.verify("x", who, [T0, T1], 0, driver.at))

    assert missing(producer) == (T0, T1)
    driver.add("x", producer, [T0])
    assert missing(producer) == (T1,)
    assert missing(ProducerIdAndEpoch(producer.producer_id, 9)) is ErrorCode.PRODUCER_FENCED
    assert missing(ProducerIdAndEpoch(9, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    driver.end("x", producer, commit=True)
    assert missing(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.complete("x")
    assert missing(producer) == (T0, T1)


@pytest.mark.row("P4")
def test_what_is_looked_for_by_time_costs_nothing_for_ids_that_wait_for_their_expiry() -> None:
    """They are kept for a week, and a job may take a new one for each of its transactions."""

    def costs(idle: int) -> list[int]:
        driver = TransactionDriver()
        for number in range(idle):
            begun(driver, f"idle{number}")
        driver.add("x", begun(driver), [T0])
        driver.now_ms += TIMEOUT_MS + 1
        timed_out = cost(lambda: list(driver.manager.timed_out(driver.at)))
        watched = cost(lambda: list(driver.manager.unfinished()))
        driver.carry_out(driver.manager.abort_if_timed_out("x", 0, driver.at))
        assert list(driver.manager.timed_out(driver.at)) == []
        assert list(driver.manager.to_complete()) == ["x"]
        driver.complete("x")
        assert list(driver.manager.unfinished()) == []
        return [timed_out, watched]

    assert costs(200) == costs(2)


def test_of_ids_that_expire_together_some_are_looked_at_in_one_turn() -> None:
    def turn(idle: int) -> int:
        driver = TransactionDriver(TransactionLimits(max_records_per_sweep=5))
        for number in range(idle):
            begun(driver, f"idle{number}")
        driver.now_ms += driver.limits.id_expiration_ms
        removed: list[TransactionRecord] = []
        total = cost(lambda: removed.extend(driver.manager.expire(driver.at).records))
        assert removed == [TransactionRecord(f"idle{number}", None) for number in range(5)]
        return total

    assert turn(100) == turn(10)


def test_ids_that_are_in_use_are_not_looked_at_where_others_expire() -> None:
    def sweep(in_use: int) -> int:
        driver = TransactionDriver()
        for name in ("used", "idle", *(f"used{number}" for number in range(in_use))):
            begun(driver, name)
        driver.now_ms += driver.limits.id_expiration_ms
        for name in ("used", *(f"used{number}" for number in range(in_use))):
            begun(driver, name)
        driver.failover()
        removed: list[TransactionRecord] = []
        total = cost(lambda: removed.extend(driver.manager.expire(driver.at).records))
        assert removed == [TransactionRecord("idle", None)]
        return total

    assert sweep(200) == sweep(2)


def test_an_id_from_a_time_when_the_clock_was_ahead_is_in_the_way_of_no_other() -> None:
    driver = TransactionDriver()
    month_ms = 30 * 24 * 3_600_000
    driver.now_ms += month_ms
    begun(driver, "ahead")
    driver.now_ms -= month_ms
    begun(driver, "idle")
    driver.now_ms += driver.limits.id_expiration_ms
    assert driver.manager.expire(driver.at).records == [TransactionRecord("idle", None)]
    driver.now_ms += month_ms
    assert driver.manager.expire(driver.at).records[0] == TransactionRecord("ahead", None)
