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
    record_key: int | None = None
    failed: bool = False


@dataclass(slots=True)
class PolledValue:
    """A value at an offset: the operation that polled it first, and the final readers that found it."""

    op: int
    final: dict[int, int] = field(default_factory=dict)  # final reader -> its operation


@dataclass(slots=True)
class FinalReader:
    """What a process of the final phase polled, from its assignment to its next one."""

    number: int  # of the operation that assigned the partitions
    process: int
    keys: Sequence[str]
    has_polled: bool = False
    is_abandoned: bool = False  # its client was thrown away before it was done
    found: dict[str, dict[int, int]] = field(default_factory=dict)
    """Key -> offset -> the operation that found there what was seen first at that offset."""


@dataclass(slots=True)
class PartitionObservations:
    """What clients observed of one partition. Millions of messages: one entry per offset, not per poll."""

    key: str
    mode: TopicMode
    sent: list[int] = field(default_factory=list)  # values, in the order of the history
    polled: dict[int, int] = field(default_factory=dict)  # offset -> the value that was seen there first
    first_poll: dict[int, int] = field(default_factory=dict)  # offset -> operation that saw `polled` first
    disagreeing: dict[int, dict[int, PolledValue]] = field(
        default_factory=dict
    )  # offset -> other values there
    read: dict[int, int] = field(default_factory=dict)  # value -> first successful operation that polled it

    def values_at(self, offset: int) -> dict[int, PolledValue]:
        """Every value that a poll found at an offset."""
        if offset not in self.polled:
            return {}
        first = PolledValue(self.first_poll[offset])
        return {self.polled[offset]: first, **self.disagreeing.get(offset, {})}

    def shown_of(self, values: set[int]) -> set[int]:
        """Those of `values` that any poll found here."""
        shown = values.intersection(self.polled.values())
        for others in self.disagreeing.values():
            shown |= values & others.keys()
        return shown

    def first_sightings(self) -> dict[int, int]:
        """Value -> the first operation that polled it, whatever became of that operation."""
        sightings: dict[int, int] = {}
        for offset in self.polled:
            for value, sighting in self.values_at(offset).items():
                sightings[value] = min(sighting.op, sightings.get(value, sighting.op))
        return sightings


@dataclass(slots=True)
class Observations:
    operations: Sequence[Operation]
    partitions: dict[str, PartitionObservations]
    uncommitted: dict[str, PartitionObservations]
    """Of topics written in transactions, what readers of isolation.level=read_uncommitted saw: what is
    open or aborted too. Nothing of it is in `partitions`."""
    senders: dict[int, Sent]  # value -> its send
    proven: set[int]  # operations of unknown outcome that must have happened: something they sent was read
    final_readers: list[FinalReader]  # those that finished
    has_final_phase: bool
    is_whole: bool  # it has a final phase, and was not torn before
    messages: int  # how many were polled, repeats included

    @property
    def final_keys(self) -> set[str]:
        """Partitions that the final phase read, found empty or not."""
        return {key for reader in self.final_readers for key in reader.keys}

    def sender(self, key: str, value: int) -> Sent | None:
        sent = self.senders.get(value)
        return sent if sent is not None and sent.key == key else None

    def sightings(self, key: str, offset: int) -> dict[int, PolledValue]:
        """Every value that any reader found there; who read what is committed is the better witness."""
        uncommitted, found = self.uncommitted.get(key), self.partitions[key].values_at(offset)
        return found if uncommitted is None else uncommitted.values_at(offset) | found

    def acknowledged(self, sent: Sent) -> bool:
        """The client got an ack for the value. An operation of several sends may end unknown although some of
        them were acknowledged; in a transaction, nothing is until it commits."""
        operation = self.operations[sent.op]
        if operation.outcome == "info":
            return sent.offset is not None and operation.f != "txn"
        return operation.outcome == "ok"

    def failed(self, sent: Sent) -> bool:
        """It surely is in no log: alone, or with its operation."""
        return sent.failed or self.operations[sent.op].outcome == "fail"

    def committed(self, sent: Sent) -> bool:
        return sent.op in self.proven or self.acknowledged(sent)


def observe(history: History) -> Observations:
    topics = history.header.topics
    partitions: dict[str, PartitionObservations] = {}
    uncommitted: dict[str, PartitionObservations] = {}
    senders: dict[int, Sent] = {}
    messages = 0
    final = FinalPhase()
    for index, operation in enumerate(history.operations):
        reader = final.reader_of(index, operation)
        for micro in operation.ops:
            if isinstance(micro, Send):
                _note_send(micro, index, _partition(partitions, topics, micro.key), senders)
                continue
            for key, pairs in micro.messages.items():
                messages += len(pairs)
                partition = _partition(partitions, topics, key)
                if operation.uncommitted and partition.mode.transactional:
                    partition = _partition(uncommitted, topics, key)
                _note_poll(pairs, index, operation.outcome == "ok", partition, reader)
    observations = Observations(
        history.operations, partitions, uncommitted, senders, set(), final.finished(),
        has_final_phase=final.has_begun, is_whole=final.has_begun and not history.torn, messages=messages,
    )  # fmt: skip
    unknown = {value for value, sent in senders.items() if history.operations[sent.op].outcome == "info"}
    for partition in partitions.values():
        for value in partition.shown_of(unknown):
            sent = observations.sender(partition.key, value)
            if sent is not None:
                observations.proven.add(sent.op)
    return observations


class FinalPhase:
    """Follows the final readers through a history."""

    def __init__(self) -> None:
        self.has_begun = False
        self._readers: list[FinalReader] = []
        self._reading: dict[int, FinalReader] = {}  # by process

    def reader_of(self, index: int, operation: Operation) -> FinalReader | None:
        """The final reader that polls by this operation, if it is one's. Who reads uncommitted is none."""
        self.has_begun |= operation.final
        if operation.f == "crash" and operation.process in self._reading:
            self._reading.pop(operation.process).is_abandoned = True
        if not operation.final or operation.outcome != "ok" or operation.uncommitted:
            return None
        if operation.f == "assign":
            reader = self._reading[operation.process] = FinalReader(index, operation.process, operation.keys)
            self._readers.append(reader)
            return None
        reading = self._reading.get(operation.process) if operation.f == "poll" else None
        if reading is not None:
            reading.has_polled = True
        return reading

    def finished(self) -> list[FinalReader]:
        return [reader for reader in self._readers if reader.has_polled and not reader.is_abandoned]


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
    senders[send.value] = Sent(index, send.key, send.offset, send.record_key, send.failed)
    partition.sent.append(send.value)


def _note_poll(
    pairs: Sequence[Sequence[int]],
    index: int,
    ok: bool,
    partition: PartitionObservations,
    reader: FinalReader | None,
) -> None:
    polled, read = partition.polled, partition.read
    found = None if reader is None else reader.found.setdefault(partition.key, {})
    for offset, value in pairs:
        if ok and value not in read:
            read[value] = index
        known = polled.get(offset)
        if known is None:
            known = polled[offset] = value
            partition.first_poll[offset] = index
        if known == value:
            if found is not None:
                found.setdefault(offset, index)
        else:
            sighting = partition.disagreeing.setdefault(offset, {}).setdefault(value, PolledValue(index))
            if reader is not None:
                sighting.final.setdefault(reader.number, index)
