"""Topics are deleted again and again, step by step, among commits, transactions and loads: in the end groups
have what was written for the last topics of the names, as if nothing had been written for those before."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.coordinator.groups.messages import CommittedOffset
from data_plane.coordinator.groups.offsets import OffsetMetadataManager, TopicDeletion, UnfinishedDeletion
from data_plane.coordinator.groups.records import OffsetRecord
from metadata_quorum.foundation.model import TopicPartition
from tests.support.suite.examples import examples

DELETED: Final = "t"
PLACES: Final = [TopicPartition(DELETED, 0), TopicPartition("stays", 0)]
GROUPS: Final = ["g", "h"]
PRODUCERS: Final = [1, 2]


class Entry(NamedTuple):
    """Of the log: a record, in a producer's transaction perhaps; or the end of one."""

    deletions: int
    """How many there had been."""
    record: OffsetRecord | None = None
    producer: int | None = None
    commit: bool = False

    def apply(self, offsets: OffsetMetadataManager) -> None:
        if self.record is None:
            assert self.producer is not None
            offsets.end_transaction(self.producer, commit=self.commit)
        elif self.producer is None:
            offsets.replay(self.record)
        else:
            offsets.hold(self.record, self.producer)


@dataclass
class History:
    rng: random.Random
    offsets: OffsetMetadataManager = field(default_factory=OffsetMetadataManager)
    log: list[Entry] = field(default_factory=list)
    under_way: list[TopicDeletion] = field(default_factory=list)
    deletions: int = 0

    def write(self, **of_entry: object) -> None:
        self.log.append(Entry(self.deletions, **of_entry))  # type: ignore[arg-type]
        self.log[-1].apply(self.offsets)

    def commit(self) -> None:
        value = CommittedOffset(len(self.log), -1, "", 0, -1)
        record = OffsetRecord(self.rng.choice(GROUPS), self.rng.choice(PLACES), value)
        self.write(record=record, producer=self.rng.choice([None, *PRODUCERS, *PRODUCERS]))

    def end_one(self) -> None:
        self.write(producer=self.rng.choice(PRODUCERS), commit=self.rng.random() < 0.6)

    def delete(self) -> None:
        self.deletions += 1
        self.under_way.append(self.offsets.begin_topic_deletion(UnfinishedDeletion([DELETED])))

    def step(self) -> None:
        if not self.under_way:
            return
        deletion = self.under_way.pop(0)
        tombstones = self.offsets.delete_some_offsets(deletion, self.rng.randint(1, 3))
        refused = bool(tombstones) and self.rng.random() < 0.1
        for tombstone in tombstones[: 1 if refused else None]:
            self.write(record=tombstone)
        if refused:
            self.offsets.refuse_topic_deletion(deletion)
        if not deletion.done:
            self.under_way.append(deletion)

    def load_anew(self) -> None:
        unfinished, self.offsets = self.offsets.unfinished_deletions(), OffsetMetadataManager()
        for entry in self.log:
            entry.apply(self.offsets)
        self.under_way = [self.offsets.begin_topic_deletion(each) for each in unfinished]

    def end(self) -> None:
        for producer in PRODUCERS:
            self.write(producer=producer, commit=self.rng.random() < 0.5)
        for _ in range(200):
            self.step()
        assert not self.under_way

    def expected(self) -> dict[tuple[str, TopicPartition], int]:
        offsets = OffsetMetadataManager()
        for entry in self.log:
            record = entry.record
            if record is not None and record.partition.topic == DELETED and entry.deletions < self.deletions:
                continue
            if record is None or record.value is not None:
                entry.apply(offsets)
        return kept(offsets)


def kept(offsets: OffsetMetadataManager) -> dict[tuple[str, TopicPartition], int]:
    return {(group, place): each.offset for group in GROUPS for place, each in offsets.of(group).items()}


@settings(max_examples=examples(2000), deadline=None)
@given(seed=st.integers(0, 2**32), moves=st.integers(5, 40))
def test_what_is_left_is_of_the_last_topics(seed: int, moves: int) -> None:
    history = History(random.Random(seed))
    often = [history.commit] * 11 + [history.end_one] * 3 + [history.delete] + [history.step] * 4
    for _ in range(moves):
        history.rng.choice([*often, history.load_anew])()
    history.end()
    assert kept(history.offsets) == history.expected()
