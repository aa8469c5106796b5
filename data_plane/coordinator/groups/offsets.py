"""The committed offsets of one partition of `__consumer_offsets`: a position per group and partition.

Pure. Changes come in through `replay`; commits, expiry and deletion only yield the records.
The rules of expiry (offsets.retention.minutes) hang on what the group is doing: an offset ages
from when the last member left, or from its commit where no membership is involved; nothing of a
group that reads the topic expires.

Offsets of an open transaction are held beside, and take their places when it commits. Of two offsets
for one partition the one that was written later counts, whichever transaction ends first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, count, islice
from typing import Final, NamedTuple

from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.states import ClassicGroupState
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.messages import CommitOffsets, CommittedOffset
from data_plane.coordinator.groups.records import OffsetRecord
from data_plane.coordinator.state_machine import ALL, BYTES_AS_ONE, Instant, weight_of
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition

LAST_MS: Final = 2**63 - 1
"""The end of time, as a record has room for it."""

MOST_HELD: Final = 25_000
"""Offsets that one open transaction may have in a partition of `__consumer_offsets`: its marker makes all of
them count at once, which takes more than a microsecond each."""

NAMES_AS_ONE: Final = 20
"""So many topics of a consumer protocol's member take as long as an offset."""

Place = tuple[str, TopicPartition]
"""A group's offset for a partition."""

_NONE: dict[TopicPartition, CommittedOffset] = {}
_NONE_HELD: dict[Place, tuple[int, CommittedOffset]] = {}


class UnfinishedDeletion(NamedTuple):
    """A `TopicDeletion` of a machine that another one takes the place of."""

    topics: Collection[str]
    renewed: Collection[Place] = ()
    """Places where later topics of the names have an offset by now."""
    held_since: Sequence[tuple[int, Place]] = ()
    """Where producers' open transactions have one for them, in the order in which those were written."""


class TopicDeletion:
    """Topics were deleted. Their offsets are deleted in several steps; what is committed meanwhile belongs to
    topics that were re-created under their names, and stays."""

    def __init__(self, what: UnfinishedDeletion, group_ids: Iterable[str], began: int) -> None:
        self.topics = frozenset(what.topics)
        self.began = began
        """Writes from this one on are of the new topics."""
        self.left = deque(group_ids)
        self.group: tuple[str, Iterator[TopicPartition]] | None = None
        """A group that has been looked at in part, and what is left of it."""
        self.is_late = False
        """Something of that group is held by a new transaction."""
        self.waits = False
        """The last step found only groups to be looked at again once transactions end; or was refused."""
        self.tombstones = 0
        """Of the last step."""
        self.renewed = set(what.renewed)
        """Committed since."""

    @property
    def done(self) -> bool:
        return not self.left and self.group is None


class OffsetMetadataManager:
    """Group id -> partition -> offset."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._held: dict[int, dict[Place, tuple[int, CommittedOffset]]] = {}
        """By producer id: what its open transaction would commit, and when that was written."""
        self._holders: dict[str, dict[TopicPartition, set[int]]] = {}
        """By group and partition: the producers whose open transactions have an offset for it."""
        self._readers: dict[str, Counter[str]] = {}
        """By topic: how many offsets a group has for it, of those that have any. Topics go one by one,
        and each concerns a few of very many groups."""
        self._writes = count()
        self._topic_deletions: list[TopicDeletion] = []

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group or group_id in self._holders

    def groups(self) -> list[str]:
        """Groups that have committed offsets, or would have by an open transaction."""
        return [*self._by_group, *(each for each in self._holders if each not in self._by_group)]

    def topics(self) -> set[str]:
        """For which something is committed, or would be by an open transaction."""
        return {*self._readers, *(p.topic for holders in self._holders.values() for p in holders)}

    def of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        return self._by_group.get(group_id, _NONE)

    def held(self, group_id: str, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Those that an open transaction may change."""
        holders = self._holders.get(group_id)
        return frozenset(p for p in partitions if p in holders) if holders else frozenset()

    def is_held(self, group_id: str) -> bool:
        """Whether it has offsets in open transactions."""
        return group_id in self._holders

    def check_room(self, request: CommitOffsets) -> ErrorCode:
        """Whether a transaction may have these offsets, too."""
        if request.producer is None:
            return ErrorCode.NONE
        held = self._held.get(request.producer.producer_id, _NONE_HELD)
        size = len(held) + len(request.offsets)
        if size > MOST_HELD:
            places = {(request.group_id, offset.partition) for offset in request.offsets}
            size = len(held) + len(places - held.keys())
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if size > MOST_HELD else ErrorCode.NONE

    def hold(self, record: OffsetRecord, producer_id: int) -> None:
        """An offset of an open transaction is in the log."""
        if record.value is not None:
            place = (record.group_id, record.partition)
            self._held.setdefault(producer_id, {})[place] = (next(self._writes), record.value)
            of_group = self._holders.setdefault(record.group_id, {})
            of_group.setdefault(record.partition, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool, most: int = ALL) -> bool:
        """Returns whether there is more than `most`."""
        for place, (written, value) in list(islice(self._held.get(producer_id, _NONE_HELD).items(), most)):
            self._release(place, producer_id)
            if commit:
                self._supersede(place, written)
                self._keep(place, value, written)
        return producer_id in self._held

    def _keep(self, place: Place, value: CommittedOffset, written: int) -> None:
        group_id, partition = place
        kept = self._by_group.setdefault(group_id, {})
        if partition not in kept:
            self._readers.setdefault(partition.topic, Counter())[group_id] += 1
        kept[partition] = value
        for deletion in self._topic_deletions:
            if partition.topic in deletion.topics and written > deletion.began:
                deletion.renewed.add(place)

    def _supersede(self, place: Place, written: int) -> None:
        """What was written there before no longer matters, however its transaction ends."""
        for producer_id in self._holders_of(place):
            if self._held[producer_id][place][0] < written:
                self._release(place, producer_id)

    def _holders_of(self, place: Place) -> list[int]:
        group_id, partition = place
        holders = self._holders.get(group_id)
        return list(holders.get(partition, ())) if holders else []

    def _release(self, place: Place, producer_id: int) -> None:
        group_id, partition = place
        held, of_group = self._held[producer_id], self._holders[group_id]
        del held[place]
        if not held:
            del self._held[producer_id]
        of_group[partition].remove(producer_id)
        if not of_group[partition]:
            del of_group[partition]
        if not of_group:
            del self._holders[group_id]

    def replay(self, record: OffsetRecord) -> None:
        place, written = (record.group_id, record.partition), next(self._writes)
        self._supersede(place, written)
        if record.value is not None:
            self._keep(place, record.value, written)
            return
        group_id, topic = record.group_id, record.partition.topic
        kept = self._by_group.get(group_id)
        if kept is not None and kept.pop(record.partition, None) is not None:
            readers = self._readers[topic]
            readers[group_id] -= 1
            if not readers[group_id]:
                del readers[group_id]
            if not readers:
                del self._readers[topic]
            if not kept:
                del self._by_group[group_id]

    def expired(
        self, group_id: str, group: ClassicGroup | ConsumerGroup | None, retention_ms: int, at: Instant
    ) -> Iterator[OffsetRecord]:
        """Tombstones for what has outlived its use. What the group reads is looked up once, and only where an
        offset may be old enough: for that its members' subscriptions are read. It keeps what it reads, also
        where an old client asked for a retention of its own."""
        reads: frozenset[str] | None = None
        looked = False
        holders = self._holders.get(group_id, {})
        for partition, kept in self.of(group_id).items():
            if partition in holders:
                continue
            own = kept.expire_timestamp_ms
            if at.now_ms < (own if own >= 0 else kept.commit_timestamp_ms + retention_ms):
                continue  # it ages from its commit at the earliest
            if not looked and group is not None:
                reads, looked = group.subscribed_topics(), True
            unused_since = _unused_since_ms(group, reads, partition.topic, kept)
            if unused_since is not None and (own >= 0 or at.now_ms - unused_since >= retention_ms):
                yield OffsetRecord(group_id, partition, None)

    def to_look_at(self, group_id: str, group: ClassicGroup | ConsumerGroup | None) -> int:
        """How much `expired` may look at, in offsets."""
        return 1 + len(self.of(group_id)) + _said(group)

    def deletion(
        self, group_id: str, partitions: Collection[TopicPartition], in_use: frozenset[str] | None
    ) -> tuple[list[OffsetRecord], dict[TopicPartition, ErrorCode]]:
        """Tombstones for what is kept of these partitions, and the answer per partition. `in_use`: topics
        whose offsets stay; None means all."""
        committed, held = self.of(group_id), self.held(group_id, partitions)
        errors = {
            p: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use is None or p.topic in in_use else ErrorCode.NONE
            for p in partitions
        }
        free = (p for p, error in errors.items() if error is ErrorCode.NONE)
        return [OffsetRecord(group_id, p, None) for p in free if p in committed or p in held], errors

    def tombstones(self, group_id: str) -> Iterator[OffsetRecord]:
        """For a group that is deleted; what open transactions would commit to it is dropped, too."""
        kept = self.of(group_id)
        held = (p for p in self._holders.get(group_id, ()) if p not in kept)
        return (OffsetRecord(group_id, partition, None) for partition in chain(kept, held))

    def begin_topic_deletion(self, what: UnfinishedDeletion) -> TopicDeletion:
        deletion = TopicDeletion(what, self._readers_of(what.topics), next(self._writes))
        self._topic_deletions.append(deletion)
        for producer_id, place in what.held_since:
            held = self._held.get(producer_id, {})
            if place in held:
                held[place] = (next(self._writes), held[place][1])
        return deletion

    def _readers_of(self, topics: Collection[str]) -> dict[str, None]:
        """Groups that have offsets for them, or may have by an open transaction."""
        committed = (self._readers.get(topic, ()) for topic in topics)
        return dict.fromkeys(chain(*committed, self._holders))

    def unfinished_deletions(self) -> list[UnfinishedDeletion]:
        """For who will have read the same log, and does not know what in it is older than the topics."""
        held = sorted(
            (written, producer_id, place)
            for producer_id, places in self._held.items()
            for place, (written, _) in places.items()
        )
        return [
            UnfinishedDeletion(
                each.topics,
                frozenset(each.renewed),
                [(producer_id, place) for written, producer_id, place in held if written >= each.began],
            )
            for each in sorted(self._topic_deletions, key=lambda each: each.began)
        ]

    def delete_some_offsets(self, deletion: TopicDeletion, most: int) -> list[OffsetRecord]:
        """Tombstones for some of it, for what open transactions would commit too; about `most` offsets are
        looked at (see `weight_of`). To be repeated while something is left."""
        records: list[OffsetRecord] = []
        again: list[str] = []
        while most > 0 and not deletion.done:
            if deletion.group is None:
                group_id = deletion.left.popleft()
                places = dict.fromkeys([*self.of(group_id), *self._holders.get(group_id, ())])
                deletion.group = group_id, iter(places)
            group_id, left = deletion.group
            at_once = tombstones_at_once(group_id, most)
            places_now = list(islice(left, at_once))
            most -= 1 + len(places_now) * weight_of(group_id)
            old = [p for p in places_now if p.topic in deletion.topics]
            old = [p for p in old if (group_id, p) not in deletion.renewed]
            # A tombstone would take along what a new transaction holds: that one is to end first.
            late = {p for p in old if self._is_held_since((group_id, p), deletion.began)}
            records += [OffsetRecord(group_id, p, None) for p in old if p not in late]
            deletion.is_late |= any(self._is_left_of_old((group_id, p), deletion.began) for p in late)
            if len(places_now) < at_once:  # it was the last of them
                deletion.group = None
                if deletion.is_late:
                    again.append(group_id)
                deletion.is_late = False
        deletion.left.extend(again)
        deletion.waits = bool(again) and not records
        deletion.tombstones = len(records)
        if deletion.done:
            self._topic_deletions.remove(deletion)
        return records

    def refuse_topic_deletion(self, deletion: TopicDeletion) -> None:
        """The tombstones of the last step are not all in the log: it is looked for them again."""
        was_done = deletion.done
        deletion.left = deque(self._readers_of(deletion.topics))
        deletion.group, deletion.is_late, deletion.waits = None, False, True
        if was_done and not deletion.done:
            self._topic_deletions.append(deletion)
        elif deletion.done and not was_done:  # clients have deleted the rest
            self._topic_deletions.remove(deletion)

    def _is_held_since(self, place: Place, began: int) -> bool:
        return any(self._held[producer][place][0] >= began for producer in self._holders_of(place))

    def _is_left_of_old(self, place: Place, began: int) -> bool:
        """Whether something from before is kept there, or would be by a transaction that is open still."""
        group_id, partition = place
        held = (self._held[producer][place][0] for producer in self._holders_of(place))
        return partition in self.of(group_id) or any(written < began for written in held)


def tombstones_at_once(group_id: str, most: int) -> int:
    """How many tombstones of a group's offsets count as `most`; one at least."""
    return max(most // weight_of(group_id), 1)


def commit_records(
    request: CommitOffsets, max_metadata: int, at: Instant
) -> tuple[list[OffsetRecord], dict[TopicPartition, ErrorCode]]:
    """What an admitted commit stores, and the answer per partition. `max_metadata`: in characters, as Java
    counts them; so Kafka takes offset.metadata.max.bytes."""
    records: list[OffsetRecord] = []
    errors: dict[TopicPartition, ErrorCode] = {}
    expires_at = -1
    if request.retention_time_ms >= 0:
        expires_at = min(at.now_ms + request.retention_time_ms, LAST_MS)
    for commit in request.offsets:
        metadata = commit.metadata or ""
        if len(metadata.encode("utf-16-le")) // 2 > max_metadata:
            errors[commit.partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        value = CommittedOffset(
            commit.offset, commit.leader_epoch, metadata, at.now_ms, expires_at, commit.topic_id
        )
        records.append(OffsetRecord(request.group_id, commit.partition, value))
        errors[commit.partition] = ErrorCode.NONE
    return records, errors


def _said(group: ClassicGroup | ConsumerGroup | None) -> int:
    """How much its members say of what they read, in offsets."""
    if group is None:
        return 0
    if isinstance(group, ConsumerGroup):
        every = group.state.members.values()
        return sum(len(each.metadata.subscribed_topic_names) for each in every) // NAMES_AS_ONE
    protocol = group.metadata.protocol
    return sum(len(each.metadata(protocol)) for each in group.metadata.roster) // BYTES_AS_ONE


def _unused_since_ms(
    group: ClassicGroup | ConsumerGroup | None,
    reads: frozenset[str] | None,
    topic: str,
    kept: CommittedOffset,
) -> int | None:
    """From when on the offset ages; None while it is in use. `reads`: the topics that the group does; None
    where that is unknown."""
    if isinstance(group, ConsumerGroup):
        return None if reads is None or topic in reads else kept.commit_timestamp_ms
    if group is None or not group.metadata.protocol_type:
        return kept.commit_timestamp_ms
    if group.is_empty:
        return max(group.metadata.state_since_ms, kept.commit_timestamp_ms)
    stable = group.metadata.state is ClassicGroupState.STABLE
    return kept.commit_timestamp_ms if stable and reads is not None and topic not in reads else None
