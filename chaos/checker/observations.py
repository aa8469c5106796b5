"""What clients observed, gathered per partition in one pass over the history. All rules start from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.history import History, Operation, Poll, Send, TopicMode, topic_of


class Sent(NamedTuple):
    """The operation that sent a value, and its outcome."""

    op: int
    key: str
    offset: int | None


@dataclass(slots=True)
class PolledValue:
    """A value at an offset: the operation that polled it first, and the first of the final phase, if any."""

    op: int
    final: int | None = None


@dataclass(slots=True)
class PartitionObservations:
    """What clients observed of one partition. Millions of messages: one entry per offset, not per poll."""

    key: str
    mode: TopicMode
    sent: list[int] = field(default_factory=list)  # values, in the order of the history
    polled: dict[int, int] = field(default_factory=dict)  # offset -> the value that was seen there first
    first_poll: dict[int, int] = field(default_factory=dict)  # offset -> operation that saw `polled` first
    final_poll: dict[int, int] = field(default_factory=dict)  # offset -> final operation that saw it, too
    disagreeing: dict[int, dict[int, PolledValue]] = field(
        default_factory=dict
    )  # offset -> other values there
    read: dict[int, int] = field(default_factory=dict)  # value -> first successful operation that polled it

    def values_at(self, offset: int) -> dict[int, PolledValue]:
        """Every value that a poll found at an offset."""
        if offset not in self.polled:
            return {}
        first = PolledValue(self.first_poll[offset], self.final_poll.get(offset))
        return {self.polled[offset]: first, **self.disagreeing.get(offset, {})}


@dataclass(slots=True)
class Observations:
    operations: Sequence[Operation]
    partitions: dict[str, PartitionObservations]
    uncommitted: dict[str, PartitionObservations]
    """Of topics written in transactions, what readers of isolation.level=read_uncommitted saw: what is
    open or aborted too. Nothing of it is in `partitions`."""
    senders: dict[int, Sent]  # value -> its send
    proven: set[int]  # operations of unknown outcome that must have happened: something they sent was read
    final_keys: set[str]  # partitions that the final phase was assigned and then polled, found empty or not
    messages: int  # how many were polled, repeats included

    def sender(self, key: str, value: int) -> Sent | None:
        sent = self.senders.get(value)
        return sent if sent is not None and sent.key == key else None

    def acknowledged(self, sent: Sent) -> bool:
        """The client got an ack for the value. An operation of several sends may end unknown although some of
        them were acknowledged; in a transaction, nothing is until it commits."""
        operation = self.operations[sent.op]
        if operation.outcome == "info":
            return sent.offset is not None and operation.f != "txn"
        return operation.outcome == "ok"

    def committed(self, sent: Sent) -> bool:
        return sent.op in self.proven or self.acknowledged(sent)


def observe(history: History) -> Observations:
    topics = history.header.topics
    partitions: dict[str, PartitionObservations] = {}
    uncommitted: dict[str, PartitionObservations] = {}
    senders: dict[int, Sent] = {}
    final_keys: set[str] = set()
    assigned: dict[int, Sequence[str]] = {}  # process of the final phase -> what it is about to read
    messages = 0
    for index, operation in enumerate(history.operations):
        if operation.final and operation.outcome == "ok":
            if operation.f == "assign":
                assigned[operation.process] = operation.keys
            elif operation.f == "poll":
                final_keys.update(assigned.pop(operation.process, ()))
        for micro in operation.ops:
            if isinstance(micro, Send):
                _note_send(micro, index, _partition(partitions, topics, micro.key), senders)
                continue
            for key, pairs in micro.messages.items():
                messages += len(pairs)
                partition = _partition(partitions, topics, key)
                if operation.uncommitted and partition.mode.transactional:
                    partition = _partition(uncommitted, topics, key)
                _note_poll(pairs, index, operation, partition)
    observations = Observations(
        history.operations, partitions, uncommitted, senders, set(), final_keys, messages
    )
    for partition in partitions.values():
        for value in partition.read:
            sent = observations.sender(partition.key, value)
            if sent is not None and history.operations[sent.op].outcome == "info":
                observations.proven.add(sent.op)
    return observations


def polls_of(operation: Operation) -> list[Poll]:
    return [micro for micro in operation.ops if isinstance(micro, Poll)]


def sends_of(operation: Operation) -> list[Send]:
    return [micro for micro in operation.ops if isinstance(micro, Send)]


def _partition(
    partitions: dict[str, PartitionObservations], topics: Mapping[str, TopicMode], key: str
) -> PartitionObservations:
    partition = partitions.get(key)
    if partition is None:
        mode = topics.get(topic_of(key))
        if mode is None:
            raise ValueError(f"{key} is of no topic that the history's header names")
        partition = partitions[key] = PartitionObservations(key, mode)
    return partition


def _note_send(send: Send, index: int, partition: PartitionObservations, senders: dict[int, Sent]) -> None:
    if send.value in senders:
        raise ValueError(
            f"value {send.value} is sent by op {senders[send.value].op} and by op {index}: "
            "values must be unique, else nothing can be judged"
        )
    senders[send.value] = Sent(index, send.key, send.offset)
    partition.sent.append(send.value)


def _note_poll(
    pairs: Sequence[Sequence[int]], index: int, operation: Operation, partition: PartitionObservations
) -> None:
    polled, read = partition.polled, partition.read
    ok = operation.outcome == "ok"
    final = ok and operation.final
    for offset, value in pairs:
        if ok and value not in read:
            read[value] = index
        known = polled.get(offset)
        if known == value:
            if final:
                partition.final_poll.setdefault(offset, index)
        elif known is None:
            polled[offset] = value
            partition.first_poll[offset] = index
            if final:
                partition.final_poll[offset] = index
        else:
            sighting = partition.disagreeing.setdefault(offset, {}).setdefault(value, PolledValue(index))
            if final and sighting.final is None:
                sighting.final = index
