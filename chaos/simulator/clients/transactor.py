"""A simulated transactional producer: it copies input, and commits how far it read with what it wrote.

    committed offset -> fetch -> AddPartitionsToTxn, Produce … TxnOffsetCommit -> EndTxn -> the next one

One of transaction.version 2 (KIP-890) adds nothing by itself: leaders and the group's coordinator do, when
they are written to. Each end of a transaction gives it another epoch.

A commit is asked for only when all was written. One whose commit was never asked for surely does not commit;
where the answer to EndTxn proves nothing, the producer begins again, and the next one of its id fences it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chaos.history import ACKS_ALL, HistoryTransaction, MicroOperation, Outcome, Send, partition_of
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.producer import ProducerIdentity, Sending, encoded, send_once, sends
from chaos.simulator.clients.reader import fetch
from chaos.simulator.clients.recorder import Recorder
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, Message
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import ErrorCode

TIMEOUT_MS: Final = 8_000
"""Of a transaction, after which its coordinator aborts it."""
PATIENCE_S: Final = 15.0
"""For one request with its retries."""
COMMIT_PROBABILITY: Final = 0.7
ABORT_PROBABILITY: Final = 0.2
"""The rest is left open: the next producer of the id has to clear it away."""
SECOND: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5, ApiKey.INIT_PRODUCER_ID: 5,
}  # fmt: skip
"""The versions in which a client of transaction.version 2 speaks."""
LAST_WORDS: Final = 0.1
"""How often a producer that asks for a commit is gone for good: nobody asks for it again, nobody takes its id
over, and the coordinator is alone with what it has decided."""
MOST_OUTPUTS: Final = 3
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Refused(Exception):
    """The transaction cannot go on."""


class SimTransactor:
    """See the module."""

    def __init__(
        self,
        client: ClusterClient,
        recorder: Recorder,
        name: str,
        source: str,
        targets: list[str],
        pause_s: float,
        *,
        is_second: bool = False,
    ) -> None:
        """`name`: its first transactional id, and its group. `source`: the key that it copies. `is_second`:
        of transaction.version 2."""
        self.client = client
        self._is_second = is_second
        if is_second:
            client.versions = {**client.versions, **SECOND}
        self._recorder = recorder
        self._name = name
        self._id = name
        self._ids = 1
        self._source = source
        self._targets = targets
        self._pause_s = pause_s
        self._identity: ProducerIdentity | None = None
        self._position: int | None = None
        self._process = recorder.process()

    async def run(self) -> None:
        """Until it is asked to stop."""
        client = self.client
        while not client.is_stopping:
            try:
                if self._identity is None:
                    await self._take_over()
                if self._position is None:
                    self._position = await self._committed_offset()
                await self._transaction()
            except (OSError, Refused):
                self._identity = self._position = None
                await client.pause(0.4)
            await client.pause(self._pause_s)

    async def finish(self) -> None:
        """Leave nothing open; record how far the group has committed in the end."""
        while True:
            start = self._recorder.now_ns()
            try:
                if self._identity is None:
                    await self._take_over()
                committed = {self._source: await self._committed_offset()}
            except (OSError, Refused):
                await self.client.pause(0.4)
                continue
            self._recorder.add(
                self._process, "committed", start, "ok", final=True, group=self._name, committed=committed
            )
            return

    # ---- one transaction

    async def _transaction(self) -> None:
        start, position = self._recorder.now_ns(), self._position
        assert position is not None
        found = await fetch(self.client, self._source, position)
        if found is None or not found.pairs:
            if found is not None:
                self._position = found.next_offset
            return
        sent: list[Send] = []
        txn = HistoryTransaction(self._id, self._name, {self._source: (position, found.next_offset)})
        refusal: str | None = None
        try:
            await self._write(len(found.pairs), sent)
            await self._send_offsets(found.next_offset)
        except (OSError, Refused) as error:
            refusal = f"{type(error).__name__}: {error}"
        ending = self.client.random.random()
        outcome: Outcome = "fail"
        if refusal is None and ending < COMMIT_PROBABILITY:
            txn = txn._replace(commit_asked=self._recorder.now_ns())
            is_last = self.client.random.random() < LAST_WORDS
            outcome = await (self._commit_and_vanish() if is_last else self._end(committed=True))
        elif refusal is not None or ending < COMMIT_PROBABILITY + ABORT_PROBABILITY:
            await self._end(committed=False)
            self._recorder.visited("aborted transaction")
        else:
            self._identity = None
        if outcome == "ok":
            self._position = found.next_offset
            self.client.last_ok_s = self.client.loop.time()
        else:
            self._position = None
        self._note(start, outcome, [found.poll(self._source), *sent], txn, refusal)

    def _note(
        self,
        start: int,
        outcome: Outcome,
        ops: Sequence[MicroOperation],
        txn: HistoryTransaction,
        error: str | None,
    ) -> None:
        keys = [self._source]
        self._recorder.add(self._process, "txn", start, outcome, ops, error=error, rebalanced=keys, txn=txn)
        if outcome == "info":
            self._identity = None
            self._process = self._recorder.process(self._process)

    async def _write(self, count: int, sent: list[Send]) -> None:
        """One value for each that was read, in batches."""
        client, identity = self.client, self._identity
        assert identity is not None
        while count > 0:
            key = client.random.choice(self._targets)
            values = [self._recorder.value() for _ in range(min(count, MOST_OUTPUTS))]
            count -= len(values)
            if not self._is_second:
                await self._add_partition(key)
            sequence = identity.sequences.get(key, 0)
            batch = encoded(client, values, identity, sequence, transactional=True)
            deadline = client.loop.time() + PATIENCE_S
            first = len(sent)
            sent.extend(sends(key, values, Sending("info")))
            while (result := await send_once(client, key, batch, ACKS_ALL, self._id)).outcome != "ok":
                if client.loop.time() > deadline or result.error in _FATAL:
                    if result.error != ErrorCode.TRANSACTION_ABORTABLE.name:
                        self._identity = None
                    raise Refused(f"Produce: {result.error}")
                await client.pause(0.2)
            sent[first:] = sends(key, values, result)
            identity.sequences[key] = sequence + len(values)

    async def _add_partition(self, key: str) -> None:
        assert self._identity is not None
        topic, number = partition_of(key)
        fields = {
            "v3_and_below_transactional_id": self._id,
            "v3_and_below_producer_id": self._identity.producer_id,
            "v3_and_below_producer_epoch": self._identity.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": [number]}],
        }

        def code(answer: Message) -> int:
            (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            return int(result.partition_error_code)

        await self._request_with_retries(
            CoordinatorType.TRANSACTION, ApiKey.ADD_PARTITIONS_TO_TXN, fields, code
        )

    async def _send_offsets(self, upto: int) -> None:
        identity = self._identity
        assert identity is not None
        of_producer = {**self._owner(identity), "group_id": self._name}
        if not self._is_second:
            await self._request_with_retries(
                CoordinatorType.TRANSACTION, ApiKey.ADD_OFFSETS_TO_TXN, of_producer, _error_code
            )
        topic, number = partition_of(self._source)
        offset = {
            "partition_index": number, "committed_offset": upto, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }  # fmt: skip
        fields = {
            **of_producer, "generation_id": -1, "member_id": "", "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [offset]}],
        }  # fmt: skip
        code = _first_partition_code
        await self._request_with_retries(CoordinatorType.GROUP, ApiKey.TXN_OFFSET_COMMIT, fields, code)

    async def _end(self, *, committed: bool) -> Outcome:
        """The outcome: "info" where no response says it."""
        identity = self._identity
        if identity is None:
            return "fail"
        fields = {**self._owner(identity), "committed": committed}
        try:
            answer = await self._request_with_retries(
                CoordinatorType.TRANSACTION, ApiKey.END_TXN, fields, _error_code
            )
        except (OSError, Refused):
            self._identity = None
            return "info" if committed else "fail"
        if self._is_second:
            self._take_epoch(identity, ProducerIdentity(answer.producer_id, answer.producer_epoch))
        return "ok"

    def _take_epoch(self, before: ProducerIdentity, given: ProducerIdentity) -> None:
        """The epoch of the next transaction; its sequences begin anew."""
        is_next = given.producer_id == before.producer_id and given.epoch == before.epoch + 1
        if not is_next and given.epoch != 0:  # a producer id has been used up
            what = f"{self._id}: {before.producer_id}, {before.epoch} -> {given.producer_id}, {given.epoch}"
            self.client.report("epoch of the next transaction", what)
        self._identity = given
        self._recorder.visited("epoch of a transaction")

    async def _commit_and_vanish(self) -> Outcome:
        """Another producer goes on, under another id, with what the group has committed."""
        identity = self._identity
        assert identity is not None
        with contextlib.suppress(OSError):
            broker = await self.client.coordinator(CoordinatorType.TRANSACTION, self._id)
            fields = {**self._owner(identity), "committed": True}
            await self.client.request(broker, ApiKey.END_TXN, fields, timeout_s=0.0)
        self._ids += 1
        self._id = f"{self._name}-{self._ids}"
        self._recorder.visited("producer is gone")
        return "info"

    def _owner(self, identity: ProducerIdentity) -> Fields:
        return {
            "transactional_id": self._id, "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
        }  # fmt: skip

    # ---- before the first one

    async def _take_over(self) -> None:
        """Fence the former producer of the id; its open transaction is aborted."""
        start = self._recorder.now_ns()
        fields = {
            "transactional_id": self._id, "transaction_timeout_ms": TIMEOUT_MS, "producer_id": -1,
            "producer_epoch": -1,
        }  # fmt: skip
        txn = HistoryTransaction(self._id)
        try:
            answer = await self._request_with_retries(
                CoordinatorType.TRANSACTION, ApiKey.INIT_PRODUCER_ID, fields, _error_code
            )
        except (OSError, Refused):
            self._recorder.add(self._process, "init", start, "info", txn=txn)
            self._process = self._recorder.process(self._process)
            raise
        self._recorder.add(self._process, "init", start, "ok", txn=txn)
        self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def _committed_offset(self) -> int:
        """Where the last committed transaction ended."""
        topic, number = partition_of(self._source)
        wanted = {"name": topic, "partition_indexes": [number]}
        of_member = {"member_id": None, "member_epoch": -1}
        fields = {
            "groups": [{"group_id": self._name, **of_member, "topics": [wanted]}], "require_stable": True,
        }  # fmt: skip

        def code(answer: Message) -> int:
            (group,) = answer.groups
            return int(group.error_code or group.topics[0].partitions[0].error_code)

        answer = await self._request_with_retries(CoordinatorType.GROUP, ApiKey.OFFSET_FETCH, fields, code)
        return max(int(answer.groups[0].topics[0].partitions[0].committed_offset), 0)

    async def _request_with_retries(
        self, kind: CoordinatorType, api_key: ApiKey, fields: Fields, code_of: Any
    ) -> Message:
        """Send it to the coordinator until it succeeds. Raises `Refused` for other errors, or after
        `PATIENCE_S`."""
        client = self.client
        of = self._id if kind is CoordinatorType.TRANSACTION else self._name
        deadline = client.loop.time() + PATIENCE_S
        while True:
            why = "no answer"
            try:
                broker = await client.coordinator(kind, of)
                answer = await client.request(broker, api_key, fields)
                code = ErrorCode(code_of(answer))
                if code is ErrorCode.NONE:
                    return answer
                if code not in RETRIABLE:
                    raise Refused(f"{api_key.name}: {code.name}")
                why = code.name
            except OSError:
                pass
            client.forget_coordinator(kind, of)
            if client.loop.time() > deadline:
                raise Refused(f"{api_key.name}: {why}")
            await client.pause(0.2)


_FATAL: Final = frozenset(
    code.name
    for code in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
)


def _error_code(answer: Message) -> int:
    return int(answer.error_code)


def _first_partition_code(answer: Message) -> int:
    return int(answer.topics[0].partitions[0].error_code)
