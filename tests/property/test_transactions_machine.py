"""Transactions under any order of requests, repetitions, new incarnations, timeouts and failovers.

A model keeps what every client believes. Held after every step: who was replaced is never served again;
no transaction ends in two ways, nor in another way than its client was answered; markers of a producer never
go back in epoch, nor is it given an epoch that a marker has; a late copy of a request to continue changes
nothing, nor does one to end a transaction that had an epoch of its own; and the log says all that the live
manager knows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import NO_PRODUCER_EPOCH, TransactionState
from data_plane.coordinator.transactions.transaction_state_manager import EPOCH_PER_TRANSACTION, PREPARED
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.suite.examples import examples
from tests.unit.transactions.transaction_driver import TIMEOUT_MS, TransactionDriver, at_epoch

NAME = "x"
PARTITIONS = [TopicPartition("t", n) for n in range(3)]


@dataclass
class Client:
    """An application that was started; only the last one is the real one."""

    version: int
    producer: ProducerIdAndEpoch | None = None
    touched: frozenset[TopicPartition] = frozenset()
    asked: frozenset[ProducerIdAndEpoch] = frozenset()
    """In which epochs it wished to continue."""


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver()
        at_epoch(self.driver, NAME, 32_755)  # the end of the epochs is near
        self.clients: list[Client] = []
        self.replaced: set[ProducerIdAndEpoch] = set()
        self.marked: dict[int, int] = {}
        self.settled: set[ProducerIdAndEpoch] = set()
        """Of requests to continue, after which a transaction was begun."""
        self.ended: set[ProducerIdAndEpoch] = set()
        """Of transactions with an epoch of their own that their client has ended."""
        self.owner: Client | None = None
        """Whoever was let in last."""

    # --- what clients do

    @rule(version=st.sampled_from([0, 2]))
    def start_anew(self, version: int) -> None:
        client = Client(version)
        self.clients.append(client)
        self._init(client, None)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 2), resume=st.booleans(), repeated=st.booleans())
    def init(self, which: int, resume: bool, repeated: bool) -> None:
        client = self._client(which)
        before = client.producer
        self._init(client, client.producer if resume else None)
        if repeated and resume and before is not None and client.producer not in (None, before):
            assert self.driver.init(NAME, before) == client.producer

    def _init(self, client: Client, expected: ProducerIdAndEpoch | None) -> None:
        reply = self.driver.init(NAME, expected)
        if expected is not None:
            client.asked |= {expected}
        if isinstance(reply, ProducerIdAndEpoch):
            assert reply.epoch > self.marked.get(reply.producer_id, -1)
            if self.owner is not None and self.owner is not client and self.owner.producer is not None:
                self.replaced.add(self.owner.producer)
            assert reply not in self.replaced
            assert expected is None or client is self.owner
            client.producer, client.touched, self.owner = reply, frozenset(), client
        else:
            assert reply in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 2), partition=st.sampled_from(PARTITIONS))
    def write(self, which: int, partition: TopicPartition) -> None:
        client = self._client(which)
        if client.producer is None:
            return
        code = self.driver.add(NAME, client.producer, [partition], client.version)
        if code is ErrorCode.NONE:
            assert client is self.owner
            self.settled |= client.asked
            client.touched |= {partition}
            assert client.touched <= self.driver.state(NAME).partitions

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 2), commit=st.booleans(), repeated=st.booleans())
    def end(self, which: int, commit: bool, repeated: bool) -> None:
        client = self._client(which)
        if client.producer is None:
            return
        asked = client.producer
        wrote = client.touched
        reply = self.driver.end(NAME, asked, commit=commit, version=client.version)
        if not isinstance(reply, ProducerIdAndEpoch):
            return
        known = self.driver.state(NAME)
        commits = known.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        assert commits is commit
        if known.state in PREPARED:
            assert known.partitions == wrote
        client.producer, client.touched = reply, frozenset()
        if client.version >= EPOCH_PER_TRANSACTION:
            self.ended.add(asked)
        if repeated:
            again = self.driver.end(NAME, asked, commit=commit, version=client.version)
            assert again in (reply, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE)
            other = self.driver.end(NAME, asked, commit=not commit, version=client.version)
            assert other is ErrorCode.INVALID_TXN_STATE or known.state not in PREPARED

    @rule()
    def continue_late(self) -> None:
        before = self.driver.state(NAME)
        for producer in self.settled:
            assert isinstance(self.driver.init(NAME, producer), ErrorCode)
            assert self.driver.state(NAME) == before

    @precondition(lambda self: self.ended)
    @rule(commit=st.booleans(), partition=st.sampled_from(PARTITIONS))
    def end_late(self, commit: bool, partition: TopicPartition) -> None:
        """Or in the other way, or write in it: its client has gone on."""
        before = self.driver.state(NAME)
        for producer in self.ended:
            self.driver.end(NAME, producer, commit=commit, version=EPOCH_PER_TRANSACTION)
            refusal = self.driver.add(NAME, producer, [partition], EPOCH_PER_TRANSACTION)
            assert refusal is not ErrorCode.NONE
            assert self.driver.state(NAME) == before

    # --- what the coordinator does

    @rule()
    def write_markers(self) -> None:
        if self.driver.state(NAME).state not in PREPARED:
            return
        prepared = self.driver.complete(NAME)
        assert prepared.producer_epoch >= self.marked.get(prepared.producer_id, 0)
        self.marked[prepared.producer_id] = prepared.producer_epoch

    @rule()
    def time_passes(self) -> None:
        self.driver.now_ms += TIMEOUT_MS + 1
        open_before = self.driver.state(NAME).state is TransactionState.ONGOING
        for name in list(self.driver.manager.timed_out(self.driver.at)):
            self.driver.carry_out(self.driver.manager.abort_if_timed_out(name, 0, self.driver.at))
        assert (self.driver.state(NAME).state is TransactionState.PREPARE_ABORT) >= open_before

    @rule()
    def failover(self) -> None:
        self.driver.failover()

    # --- what always holds

    @invariant()
    def who_was_replaced_is_not_served(self) -> None:
        known = self.driver.state(NAME)
        if known.state in PREPARED:
            return
        for producer in self.replaced:
            code = self.driver.add(NAME, producer, PARTITIONS[:1])
            assert code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    @invariant()
    def the_log_says_all(self) -> None:
        live = self.driver.state(NAME)
        manager = self.driver.manager
        self.driver.failover()
        assert self.driver.state(NAME) == dataclasses.replace(live, former_epoch=NO_PRODUCER_EPOCH)
        self.driver.manager = manager

    def _client(self, which: int) -> Client:
        """One of the last three."""
        return self.clients[-1 - which % min(len(self.clients), 3)]


Transactions.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestTransactions = Transactions.TestCase
