"""A worker's consumer: it reads assigned partitions or as a member of the group, and never commits by hand.

`positions` are the next offsets, per key, as the worker saw them: a new client continues there. At the
end of a partition that may be behind the last message: markers and aborted records have offsets too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from chaos.history import AlteredRecord, partition_of
from chaos.workload.journal import Journal
from chaos.workload.producer import CLIENT_SETTINGS, SILENT
from chaos.workload.record import differences

Isolation = Literal["read_committed", "read_uncommitted"]

MOST_MESSAGES: Final = 500
WATERMARK_TIMEOUT_S: Final = 2.0
SESSION_TIMEOUT_MS: Final = 6_000
"""The shortest that brokers allow by default."""


GROUP_METADATA: Final = struct.Struct("=7si")
"""How librdkafka writes a member down: "CGMDv2:", the generation, then names."""


class Owned(NamedTuple):
    """A member was given these keys."""

    keys: Sequence[str]
    generation: int


class Committed(NamedTuple):
    """The commit of these offsets was acknowledged."""

    offsets: Mapping[str, int]


class ReadingClient:
    def __init__(
        self,
        bootstrap: str,
        group: str | None = None,
        instance_id: str | None = None,
        *,
        isolation: Isolation = "read_committed",
        commits: bool = True,
    ) -> None:
        """A member of `group`, or of none: then it is assigned partitions, and commits nothing. `commits`: a
        member commits by itself; else its offsets are committed by a transaction."""
        self.group = group
        self._rebalanced: set[str] = set()
        self._news: list[Owned | Committed] = []
        self._altered: list[AlteredRecord] = []
        self._errors: list[str] = []
        settings: dict[str, Any] = {
            **CLIENT_SETTINGS,
            "bootstrap.servers": bootstrap,
            "group.id": group or "nobody",
            "enable.auto.commit": group is not None and commits,
            # Else librdkafka 2.16, when it is closed, commits behind markers that it has and messages that
            # were not delivered.
            "enable.auto.offset.store": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 4,
            "max.poll.interval.ms": 30_000,
            "auto.commit.interval.ms": 1_000,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 250,
            "fetch.error.backoff.ms": 100,
            "check.crcs": True,
            "error_cb": self._note_error,
            "on_commit": self._note_commit,
        }
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        self._commits = group is not None and commits
        self._consumer = Consumer(settings, logger=SILENT)
        self.is_dead = False
        """After a fatal error, such as being fenced by its successor, it reads nothing any more."""

    def assign(self, keys: Iterable[str], positions: Mapping[str, int]) -> None:
        """Read these, each from its position, or from offset 0 where it has none: not from "the beginning",
        to which librdkafka may return although it was given another offset meanwhile (docs/CHAOS.md)."""
        self._consumer.assign([TopicPartition(*partition_of(key), positions.get(key, 0)) for key in keys])

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read what the group assigns. Not on a client that was assigned partitions by hand, nor the reverse:
        a late revocation would take the new partitions too."""
        try:
            self._consumer.subscribe(
                list(topics), on_assign=self._note_assignment, on_revoke=self._note_rebalance,
                on_lost=self._note_rebalance,
            )  # fmt: skip
        except KafkaException as problem:  # it has failed, and was not polled since
            self._note_fatal(problem)

    def poll(
        self, timeout_s: float, positions: MutableMapping[str, int], most: int = MOST_MESSAGES
    ) -> dict[str, list[tuple[int, int]]]:
        """The messages that come within the timeout; `positions` advance."""
        polled: dict[str, list[tuple[int, int]]] = {}
        try:
            first = self._consumer.poll(timeout_s)
            messages = [] if first is None else [first, *self._consumer.consume(most - 1, 0)]
        except KafkaException as problem:
            self._note_fatal(problem)
            return polled
        for message in messages:
            error = message.error()
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            key = f"{topic}-{partition}"
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    self._note_error(error)
                elif offset is not None:
                    positions[key] = offset
                continue
            value = message.value()
            assert offset is not None
            assert isinstance(value, bytes)
            self._altered += [AlteredRecord(key, offset, what) for what in differences(message)]
            polled.setdefault(key, []).append((offset, int(value)))
            positions[key] = offset + 1
        if self._commits:
            self._store(polled)
        return polled

    def _store(self, polled: Mapping[str, list[tuple[int, int]]]) -> None:
        """What was handed out may be committed."""
        try:
            self._consumer.store_offsets(
                offsets=[
                    TopicPartition(*partition_of(key), pairs[-1][0] + 1) for key, pairs in polled.items()
                ]
            )
        except KafkaException:
            pass  # some of it was revoked meanwhile: its next reader begins where it was

    def seek(self, positions: Mapping[str, int]) -> bool:
        """Go back to them; False where a key is no longer this member's."""
        try:
            for key, offset in positions.items():
                self._consumer.seek(TopicPartition(*partition_of(key), offset))
        except KafkaException:
            return False
        return True

    def group_metadata(self) -> Any:
        """Which member of the group this is, for the transaction that commits its offsets."""
        return self._consumer.consumer_group_metadata()

    def end_of(self, key: str) -> int | None:
        """Where reading of it ends for consumers now; None where no broker answers."""
        try:
            ends = self._consumer.get_watermark_offsets(
                TopicPartition(*partition_of(key)), timeout=WATERMARK_TIMEOUT_S
            )
        except KafkaException as error:
            self._note_error(error.args[0])
            return None
        return ends[1]

    def committed(self, keys: Sequence[str]) -> dict[str, int] | None:
        """How far its group has committed, of those that it has committed at all; None where its coordinator
        does not answer. Waits for transactions that are about to end."""
        try:
            found = self._consumer.committed(
                [TopicPartition(*partition_of(key)) for key in keys], timeout=WATERMARK_TIMEOUT_S
            )
        except KafkaException as error:
            self._note_error(error.args[0])
            return None
        if any(each.error is not None for each in found):
            return None
        return {f"{each.topic}-{each.partition}": each.offset for each in found if each.offset >= 0}

    def end(self) -> None:
        """Close it. May take a while; a member of a group may hang and keep the interpreter (watchdog.py):
        librdkafka may ask it to rebalance, and answer nothing to that any more."""
        self._consumer.close()

    def drop(self) -> None:
        """At the end of all: it is destroyed without being asked to rebalance. May take a while, too."""
        del self._consumer

    def take_rebalanced(self) -> tuple[str, ...]:
        """Keys that were given or taken since the last call."""
        keys = tuple(sorted(self._rebalanced))
        self._rebalanced.clear()
        return keys

    def take_altered(self) -> tuple[AlteredRecord, ...]:
        """What was handed out since the last call with other things than it was sent with."""
        altered = tuple(self._altered)
        self._altered.clear()
        return altered

    def note_news(self, journal: Journal) -> None:
        """Write down what this member was given, and what it has committed, since the last call."""
        for news in self._news:
            now = journal.now_ns()
            match news:
                case Owned(keys, generation):
                    journal.note("owned", now, "ok", keys=keys, group=self.group, generation=generation)
                case Committed(offsets):
                    journal.note("commit", now, "ok", group=self.group, committed=offsets)
        self._news.clear()

    def take_error(self) -> str | None:
        """The first error since the last call."""
        error = self._errors[0] if self._errors else None
        self._errors.clear()
        return error

    def _note_rebalance(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalanced.update(f"{each.topic}-{each.partition}" for each in partitions)

    def _note_assignment(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_rebalance(consumer, partitions)
        member: Any = consumer.consumer_group_metadata()
        if member is None:  # it is being closed, and of no group any more
            return
        magic, generation = GROUP_METADATA.unpack_from(member)
        assert magic == b"CGMDv2:", member
        self._news.append(Owned([f"{each.topic}-{each.partition}" for each in partitions], generation))

    def _note_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        offsets = {
            f"{each.topic}-{each.partition}": each.offset
            for each in partitions
            if each.error is None and each.offset >= 0
        }
        if error is None and offsets:
            self._news.append(Committed(offsets))

    def _note_error(self, error: KafkaError) -> None:
        self.is_dead |= error.fatal() or error.code() == KafkaError._FATAL
        self._errors.append(error.str())

    def _note_fatal(self, raised: KafkaException) -> None:
        """Raises it again where it is not."""
        self._note_error(raised.args[0])
        if not self.is_dead:
            raise raised
