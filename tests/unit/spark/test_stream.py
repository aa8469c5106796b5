"""A streaming query's planner against a made-up cluster, run as Spark runs it, deaths included."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.errors import DataLossError, SourceError
from spark_connector.offsets import (
    NO_OFFSET,
    Offsets,
    StreamOffset,
)
from spark_connector.options import source_options
from spark_connector.stream import ASK_INTERVAL_S, TOPICS_INTERVAL_S, StreamPlanner

A, B, C = (TopicPartition("t", number) for number in range(3))
Logs = dict[TopicPartition, tuple[int, int]]


@dataclass
class World:
    """Logs by their bounds, and a clock that moves when it is waited for."""

    logs: Logs
    time_s: float = 1000.0
    asked: list[float] = field(default_factory=list)
    ids: dict[str, UUID] = field(default_factory=lambda: {"t": UUID(int=1)})
    forbidden: set[str] = field(default_factory=set)
    """Topics that we may not describe."""
    _behind: tuple[Logs, dict[str, UUID]] | None = None
    _told: tuple[Logs, dict[str, UUID]] = ({}, {})

    def is_behind(self, logs: Logs, ids: dict[str, UUID] | None = None):
        """The broker that is asked next for the partitions knows no more than that."""
        self._behind = (logs, self.ids if ids is None else ids)

    def topic_names(self):
        return sorted({each.topic for each in self.logs} - self.forbidden)

    def partitions_of(self, topics):
        topics = set(topics)
        if topics & self.forbidden:
            raise SourceError("TOPIC_AUTHORIZATION_FAILED", "t")
        self._told = self._behind or (self.logs, self.ids)
        self._behind = None
        return {each for each in self._told[0] if each.topic in set(topics)}

    def topic_ids(self, topics):
        return {name: self._told[1][name] for name in topics}

    def earliest(self, partitions):
        return {each: self.logs[each][0] for each in partitions if each in self.logs}

    def latest(self, partitions):
        self.asked.append(self.time_s)
        return {each: self.logs[each][1] for each in partitions if each in self.logs}

    def at_times(self, times_ms):
        return dict.fromkeys(times_ms, NO_OFFSET)

    def now(self):
        return self.time_s

    def pause(self, seconds):
        self.time_s += seconds

    def append(self, partition: TopicPartition, count: int) -> None:
        first, end = self.logs.get(partition, (0, 0))
        self.logs[partition] = (first, end + count)


def planner(world: World, **options: str) -> StreamPlanner:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "startingOffsets": "earliest", **options}
    given = {key: value for key, value in given.items() if value}
    return StreamPlanner(source_options(given, streaming=True), world)


def at(offsets: Offsets, topic_id: int = 1) -> StreamOffset:
    """Of the one topic that there is."""
    return StreamOffset(offsets, {"t": UUID(int=topic_id)})


# ---- asking the leaders


def test_leaders_are_asked_at_a_bounded_rate():
    world = World({A: (0, 5)})
    plan = planner(world)
    for _ in range(10):
        assert plan.latest(at({A: 5}), limited=False) == at({A: 5})
    gaps = [after - before for before, after in itertools.pairwise(world.asked)]
    assert gaps == pytest.approx([ASK_INTERVAL_S] * 9)


def test_new_records_are_returned_without_waiting():
    world = World({A: (0, 5)})
    plan = planner(world)
    plan.latest(at({A: 0}), limited=False)
    assert plan.latest(at({A: 0}), limited=False) == at({A: 5})
    assert len(world.asked) == 1


def test_new_partitions_are_found():
    world = World({A: (0, 5)})
    plan = planner(world)
    plan.latest(at({A: 5}), limited=False)
    world.append(B, 1)
    assert plan.latest(at({A: 5}), limited=False) == at({A: 5})
    world.time_s += TOPICS_INTERVAL_S
    assert plan.latest(at({A: 5}), limited=False) == at({A: 5, B: 1})


def test_offsets_that_went_back_are_asked_for_again():
    world = World({A: (0, 5)})
    plan = planner(world, **{"fetchOffset.numRetries": "4", "fetchOffset.retryIntervalMs": "250"})
    assert plan.latest(at({A: 9}), limited=False) == at({A: 5})
    assert [when - world.asked[0] for when in world.asked] == [0, 0.25, 0.5, 0.75]


# ---- how far


def test_limits_hold_unless_spark_wants_everything():
    world = World({A: (0, 100), B: (3, 103)})
    plan = planner(world, maxOffsetsPerTrigger="10")
    assert plan.latest(at({A: 0, B: 3}), limited=True) == at({A: 5, B: 8})
    assert plan.latest(at({A: 0}), limited=True) == at({A: 5, B: 8})  # a new partition
    assert plan.latest(at({A: 0, B: 3}), limited=False) == at({A: 100, B: 103})
    assert plan.reported() == at({A: 100, B: 103})


def test_a_micro_batch_that_would_be_small_waits():
    world = World({A: (0, 100)})
    plan = planner(world, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    assert plan.latest(at({A: 0}), limited=True) == at({A: 100})
    world.append(A, 9)
    world.time_s += 1
    assert plan.latest(at({A: 100}), limited=True) == at({A: 100})
    world.time_s += 60
    assert plan.latest(at({A: 100}), limited=True) == at({A: 109})


def test_while_a_micro_batch_is_held_back_spark_is_made_to_wait():
    """It asks again at once, whatever the answer."""
    world = World({A: (0, 100)})
    plan = planner(world, minOffsetsPerTrigger="10")
    plan.latest(at({A: 0}), limited=True)
    world.append(A, 9)
    began = world.time_s
    for _ in range(10):
        assert plan.latest(at({A: 100}), limited=True) == at({A: 100})
    assert world.time_s - began == pytest.approx(10 * ASK_INTERVAL_S, rel=0.2)


def test_available_now_does_not_move_and_does_not_wait():
    world = World({A: (0, 7)})
    plan = planner(world, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    plan.stop_at_what_is_there()
    steps = [at({A: 0})]
    while steps[-1] != (step := plan.latest(steps[-1], limited=True)):
        steps.append(step)
        world.append(A, 100)
        world.time_s += 10
    assert steps == [at({A: 0}), at({A: 5}), at({A: 7})]
    assert plan.reported() == at({A: 7})


def test_a_query_does_not_begin_with_topics_that_are_not_there():
    with pytest.raises(SourceError, match="'subscribe': topic u does not exist"):
        planner(World({A: (0, 1)}), subscribe="t,u").initial_offset()


def test_a_deleted_partition_ends_the_query_or_is_passed_over():
    world = World({A: (0, 5)})
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED"):
        planner(world).tasks(at({A: 2, B: 4}), at({A: 5}))
    (left,) = planner(world, failOnDataLoss="false").tasks(at({A: 2, B: 4}), at({A: 5}))
    assert (left.partition, left.start, left.end) == (A, 2, 5)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_right_that_was_taken_away_is_no_deleted_topic(fail_on_data_loss: str):
    """It is not listed, either. Taken for deleted, all of it would be read again when the right is back."""
    world = World({A: (0, 5), TopicPartition("u", 0): (0, 3)})
    world.ids["u"] = UUID(int=2)
    options = {"subscribePattern": "t", "failOnDataLoss": fail_on_data_loss}
    plan = planner(world, subscribe="", **options)
    start = plan.latest(at({A: 0}), limited=False)
    world.forbidden = {"t", "u"}
    world.time_s += TOPICS_INTERVAL_S
    with pytest.raises(SourceError, match="TOPIC_AUTHORIZATION_FAILED"):
        plan.latest(start, limited=False)


# ---- what one broker knows, and another not yet


@pytest.mark.parametrize("known", [{A: (0, 5)}, {}])
def test_what_a_broker_that_is_behind_does_not_know_is_asked_of_another(known: Logs):
    """A partition, or the whole topic: nothing is lost, and nothing is read again."""
    world = World({A: (0, 5), B: (0, 4)})
    plan = planner(world, failOnDataLoss="false", **{"fetchOffset.retryIntervalMs": "0"})
    start = plan.latest(at({A: 0, B: 0}), limited=False)
    world.is_behind(known)
    world.time_s += TOPICS_INTERVAL_S
    assert plan.latest(start, limited=False) == start


def test_where_one_broker_knows_the_topic_that_was_deleted_another_is_asked():
    world = World({A: (0, 5)}, ids={"t": UUID(int=2)})
    plan = planner(world, failOnDataLoss="false")
    start = plan.latest(at({A: 0}, topic_id=2), limited=False)
    world.is_behind(world.logs, {"t": UUID(int=1)})
    world.time_s += TOPICS_INTERVAL_S
    assert plan.latest(start, limited=False) == start


def test_a_log_that_became_shorter_before_anything_of_it_was_read_is_a_loss():
    world = World({A: (0, 9)})
    plan = planner(world, startingOffsets="latest")
    start = plan.initial_offset()
    assert plan.latest(start, limited=True) == start
    assert plan.tasks(start, start) == []
    world.logs[A] = (0, 5)
    end = plan.latest(start, limited=True)
    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        plan.tasks(start, end)


# ---- re-created topics


def made_anew(world: World, records: int) -> None:
    world.logs, world.ids = {A: (0, records)}, {"t": UUID(int=2)}
    world.time_s += TOPICS_INTERVAL_S


@pytest.mark.parametrize("records", [3, 5, 9])
def test_a_recreated_topic_ends_the_query_or_is_read_from_its_first_record(records: int):
    """However many records it has: fewer than were read of the old one, as many, more."""
    world = World({A: (0, 5)})
    for_good, goes_on = planner(world), planner(world, failOnDataLoss="false", maxOffsetsPerTrigger="100")
    start = at({A: 5})
    for plan in (for_good, goes_on):
        assert plan.latest(start, limited=True) == start
    made_anew(world, records)
    for plan in (for_good, goes_on):
        assert plan.latest(start, limited=True) == at({A: records}, topic_id=2)
    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*t: deleted and re-created"):
        for_good.tasks(start, at({A: records}, topic_id=2))
    (whole,) = goes_on.tasks(start, at({A: records}, topic_id=2))
    assert (whole.start, whole.end) == (0, records)
    assert goes_on.latest(at({A: records}, topic_id=2), limited=True) == at({A: records}, topic_id=2)


def test_a_checkpoint_without_ids_continues_where_it_was():
    """That of Spark's own source."""
    world = World({A: (0, 5)})
    plan = planner(world)
    bare = StreamOffset({A: 3}, {})
    assert plan.latest(bare, limited=False) == at({A: 5})
    (rest,) = plan.tasks(bare, at({A: 5}))
    assert (rest.start, rest.end) == (3, 5)
    assert plan.tasks(at({A: 3}), StreamOffset({A: 5}, {})) == [rest]


# ---- as Spark runs it


class Died(Exception):
    pass


@dataclass
class Spark:
    """Spark's micro-batch loop, so far as it concerns a source: an offset log, a commit log, and deaths
    between any two of its steps. `knows_starts`: from 4.2 on Spark tells a source where it is."""

    world: World
    knows_starts: bool
    options: dict[str, str]
    grows: bool
    """A partition comes."""
    offset_log: list[StreamOffset] = field(default_factory=list)
    commits: int = 0
    output: dict[int, set[tuple[TopicPartition, int]]] = field(default_factory=dict)

    def run(self, rng: random.Random, death: float) -> None:
        """A run of the query while records come, which dies at each step with that probability; with none,
        nothing comes any more, and it ends when all is read."""
        plan = planner(self.world, **self.options)

        def step() -> None:
            self.world.time_s += 0.3
            if death:
                self.world.append(rng.choice((A, B, C) if self.grows else (A, B)), rng.randrange(3))
                if rng.random() < death:
                    raise Died

        committed = self.offset_log[self.commits - 1] if self.commits else None
        if self.offset_log and not self.knows_starts:
            plan.tasks(self.offset_log[-1], self.offset_log[-1])  # 4.1's `setLatestSeenOffset`
        while True:
            if len(self.offset_log) == self.commits:
                step()
                start = committed
                if self.knows_starts and start is None:
                    start = plan.initial_offset()
                step()
                end = plan.latest(start if self.knows_starts else None, limited=True)
                if end == committed and not death:
                    return
                if end == committed:
                    continue
                step()
                self.offset_log.append(end)
            step()
            start = committed if committed is not None else plan.initial_offset()
            end = self.offset_log[-1]
            ranges = plan.tasks(start, end)
            step()
            rows = {(each.partition, offset) for each in ranges for offset in range(each.start, each.end)}
            assert len(rows) == sum(each.size for each in ranges)
            step()
            self.output[self.commits] = rows  # the sink knows its micro-batches
            step()
            self.commits += 1
            plan.committed(end)
            committed = end


@given(st.integers(0, 2**32), st.booleans(), st.sampled_from(["earliest", "latest"]), st.booleans())
def test_every_record_comes_once_whenever_the_query_dies(seed, knows_starts, start, grows):
    rng = random.Random(seed)
    world = World({A: (0, 10), B: (0, 3)})
    options = {"startingOffsets": start, "maxOffsetsPerTrigger": "6", "minPartitions": "3"}
    spark = Spark(world, knows_starts, options, grows)
    for _ in range(12):
        with contextlib.suppress(Died):
            spark.run(rng, death=0.1)
    spark.run(rng, death=0.0)
    rows = sorted(row for batch in spark.output.values() for row in batch)
    assert len(rows) == sum(map(len, spark.output.values()))
    # A start that depends on the time is fixed by the first, empty micro-batch.
    begun = spark.offset_log[0].offsets if start == "latest" else {}
    assert rows == [
        (each, offset)
        for each, (_, end) in sorted(world.logs.items())
        for offset in range(begun.get(each, 0), end)
    ]
