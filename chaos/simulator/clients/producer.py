"""A simulated producer: batches of unique values to the partitions of one topic, idempotent or not.

One batch is under way at a time. Without idempotence it is sent once, and an answer that proves nothing is
"info"; with it, it is sent again under its sequence number until its outcome is known. One that resends sends
any batch until it is acknowledged, as Kafka's clients do: without idempotence it may be there twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from chaos.history import Outcome, Send, partition_of
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.record import key_of, record_of
from chaos.simulator.clients.recorder import Recorder
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import encode_batch
from metadata_quorum.foundation.errors import ErrorCode

TIMEOUT_MS: Final = 3_000
DELIVERY_S: Final = 20.0
"""How long an idempotent batch is retried."""
MOST_PER_BATCH: Final = 4

REFUSALS: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)
"""Before the append: as the first response, they prove that the batch is in no log."""
NEW_IDENTITY: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
SEQUENCE_ERRORS: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""From a leader that was deposed and cannot know it they prove nothing: it lacks what its successor has."""


@dataclass(slots=True)
class ProducerIdentity:
    """Of an idempotent producer, with the next sequence number of each key."""

    producer_id: int = -1
    epoch: int = -1
    sequences: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Sending:
    """What is known of a batch."""

    outcome: Outcome
    offset: int | None = None
    error: str | None = None


class SimProducer:
    """See the module."""

    def __init__(
        self,
        client: ClusterClient,
        recorder: Recorder,
        keys: list[str],
        *,
        acks: int,
        idempotent: bool,
        pause_s: float,
        resends: bool = False,
    ) -> None:
        self.client = client
        self._recorder = recorder
        self._keys = keys
        self._acks = acks
        self._idempotent = idempotent
        self._pause_s = pause_s
        self._resends = resends
        self._identity = ProducerIdentity()
        self._process = recorder.process()

    async def run(self) -> None:
        """Until it is asked to stop."""
        client = self.client
        while not client.is_stopping:
            try:
                if self._idempotent and self._identity.producer_id < 0:
                    await self._new_identity()
                    continue
                key = client.random.choice(self._keys)
                await client.leader(key)  # an operation begins only where there is a leader
            except OSError:
                await client.pause(0.3)
                continue
            await self._send(key)
            await client.pause(self._pause_s)

    async def write(self, key: str) -> None:
        """Until the partition has taken it: the last act of a run."""
        while await self._send(key, final=True) != "ok":
            await self.client.pause(self._pause_s)

    async def _new_identity(self) -> None:
        fields = {
            "transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1,
        }  # fmt: skip
        answer = await self.client.request_any(ApiKey.INIT_PRODUCER_ID, fields)
        if answer.error_code:
            await self.client.pause(0.2)
        else:
            self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def _send(self, key: str, *, final: bool = False) -> Outcome:
        recorder = self._recorder
        values = [recorder.value() for _ in range(self.client.random.randint(1, MOST_PER_BATCH))]
        start = recorder.now_ns()
        if self._idempotent or self._resends:
            sent = await self._send_with_retries(key, values)
        else:
            sent = await send_once(self.client, key, encoded(self.client, values), self._acks)
        ops = sends(key, values, sent)
        recorder.add(self._process, "send", start, sent.outcome, ops, error=sent.error, final=final)
        if sent.outcome == "ok":
            self.client.last_ok_s = self.client.loop.time()
        if sent.outcome == "info":
            self._process = recorder.process(self._process)
        return sent.outcome

    async def _send_with_retries(self, key: str, values: list[int]) -> Sending:
        """The same batch, until its outcome is known or `DELIVERY_S` have passed."""
        client, identity = self.client, self._identity
        sequence = identity.sequences.get(key, 0)
        batch = encoded(client, values, identity if self._idempotent else None, sequence)
        deadline = client.loop.time() + DELIVERY_S
        first = True
        while True:
            sent = await send_once(client, key, batch, self._acks)
            if sent.outcome == "ok" or (first and sent.outcome == "fail" and not self._resends):
                break
            first = False
            if sent.error in {code.name for code in NEW_IDENTITY} or client.loop.time() > deadline:
                self._identity = ProducerIdentity()
                return Sending("info", error=sent.error)
            await client.pause(0.2)
        if sent.outcome == "ok":
            identity.sequences[key] = sequence + len(values)
        return sent


def sends(key: str, values: list[int], sent: Sending) -> list[Send]:
    """As the history has them."""
    base = sent.offset
    return [
        Send(key, value, None if base is None else base + i, key_of(value)) for i, value in enumerate(values)
    ]


def encoded(
    client: ClusterClient,
    values: list[int],
    identity: ProducerIdentity | None = None,
    sequence: int = -1,
    *,
    transactional: bool = False,
) -> bytes:
    """A batch of these values."""
    now_ms = client.loop.clock.now_ms()
    records = [record_of(value, now_ms) for value in values]
    if identity is None:
        return encode_batch(records)
    return encode_batch(
        records,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


async def send_once(
    client: ClusterClient, key: str, batch: bytes, acks: int, transactional_id: str | None = None
) -> Sending:
    """One request, and what its response proves."""
    topic, number = partition_of(key)
    fields = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": TIMEOUT_MS,
        "topic_data": [{"name": topic, "partition_data": [{"index": number, "records": batch}]}],
    }
    broker = None
    try:
        broker = await client.leader(key)
        await client.connection(broker)
    except OSError as error:
        client.forget_leader(key)
        return Sending("fail", error=f"not sent: {error}")
    try:
        if acks == 0:
            await client.send(broker, ApiKey.PRODUCE, fields)
            return Sending("ok")
        answer = await client.request(broker, ApiKey.PRODUCE, fields, TIMEOUT_MS / 1000 + 1)
    except OSError as error:
        client.forget_leader(key)
        client.drop(broker)
        return Sending("info", error=f"{type(error).__name__}: {error}")
    (partition,) = answer.responses[0].partition_responses
    code = ErrorCode(partition.error_code)
    if code is ErrorCode.NONE:
        return Sending("ok", partition.base_offset if partition.base_offset >= 0 else None)
    if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return Sending("ok")
    client.forget_leader(key)
    if code in SEQUENCE_ERRORS and client.is_deposed(key, broker):
        return Sending("info", error=f"{code.name} of a deposed leader")
    return Sending("fail" if code in REFUSALS else "info", error=code.name)
