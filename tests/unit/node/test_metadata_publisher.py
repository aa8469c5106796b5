"""When committed metadata is applied, and when no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from data_plane.coordinator.topics import OFFSETS_TOPIC
from kraft.node.metadata_publisher import CONFIG_CHARS, STEP, BrokerMetadataPublisher, steps_of
from metadata_quorum.foundation.blocking import Blocking, MayBlock
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.metadata_cache import MetadataCache
from metadata_quorum.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import in_loop

NODE_ID = 1
OURS, THEIRS = UUID(int=1), UUID(int=2)


async def _not_asked(work: Callable[[MayBlock], Any], /) -> Any:
    raise AssertionError


class _Broker:
    """What a publisher acts on; notes the offsets it was called with."""

    def __init__(self, real_loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.epoch = -1
        self.offsets: list[int] = []
        self.deaths: list[BaseException] = []
        self.changes = changes = SimpleNamespace(leading=(), following=(), removed=[])

        def apply(delta: MetadataDelta, image: MetadataImage) -> object:
            self.offsets.append(image.offset)
            return changes

        partitions: Any = SimpleNamespace(
            apply=apply,
            remove_stray_replicas=lambda image: None,
            logs_to_create=lambda delta, image: None,
            remove=lambda gone: [],
            needs_retry=False,
            retry_delta=MetadataDelta,
        )
        unused: Any = SimpleNamespace(take=lambda delta, image: None)
        self.groups = groups = SimpleNamespace(view=unused)
        self.faults: list[BaseException] = []
        self.partitions = partitions
        self.fetchers: Any = SimpleNamespace(take=unused.take)
        self.blocking: Blocking = _not_asked
        self.timers: list[tuple[float, Callable[[], object]]] = []

        def call_later(delay: float, callback: Callable[[], object]) -> object:
            self.timers.append((delay, callback))
            return SimpleNamespace(cancel=self.timers.clear)

        loop = SimpleNamespace(
            call_exception_handler=lambda context: self.faults.append(context["exception"]),
            call_later=call_later,
        )
        if real_loop is not None:
            loop.create_task = real_loop.create_task
        self.publisher = BrokerMetadataPublisher(
            NODE_ID,
            cast(Any, loop),
            MetadataCache(),
            partitions,
            self.fetchers,
            cast(Any, groups),
            unused,
            unused,
            incarnation_id=OURS,
            broker_epoch=lambda: self.epoch,
            on_published=lambda: None,
            on_fatal=self.deaths.append,
            blocking=lambda work: self.blocking(work),
        )
        self.image = EMPTY_IMAGE

    def commit(self, broker_epoch: int, incarnation_id: UUID = OURS) -> None:
        delta = MetadataDelta(self.image)
        delta.replay(
            RegisterBrokerRecord(broker_id=NODE_ID, incarnation_id=incarnation_id, broker_epoch=broker_epoch)
        )
        delta.offset = self.image.offset + 1
        self.image = delta.apply()
        self.publisher.publish(delta, self.image)


def test_nothing_happens_before_our_own_registration():
    broker = _Broker()
    broker.commit(5, THEIRS)  # of an earlier incarnation
    assert broker.offsets == []
    broker.commit(7)
    broker.epoch = 7
    broker.publisher.begin()
    assert broker.offsets == [1]


def test_a_closed_publisher_puts_nothing_into_action():
    """Its partitions are closed: a fetcher that began now would write into them."""
    broker = _Broker()
    broker.epoch = 5
    broker.commit(5)
    broker.publisher.close()
    broker.commit(5)
    assert broker.offsets == [0]


def test_a_second_process_of_our_id_ends_this_one():
    """It was paused, and metadata now speaks of the other when it names this broker as a leader."""
    broker = _Broker()
    broker.epoch = 5
    broker.commit(5)
    broker.commit(9, THEIRS)
    broker.commit(9, THEIRS)
    assert broker.offsets == [0]
    (death,) = broker.deaths
    assert isinstance(death, FatalError)
    assert death.exit_code == ExitCode.BAD_CONFIG


def test_a_bug_in_one_part_of_a_change_leaves_the_others_done():
    """A broker that broke off in the middle would answer from metadata that it has half acted on."""
    broker = _Broker()
    broker.epoch = 5
    done: list[str] = []

    def partition(name: str) -> Any:
        return SimpleNamespace(tp=TopicPartition(name, 0), leader_epoch=0)

    def follow(followed: Any) -> None:
        if followed.tp.topic == "bad":
            raise KeyError("a bug")
        done.append(followed.tp.topic)

    broker.changes.following = [partition("one"), partition("bad"), partition("other")]
    broker.fetchers.follow = follow
    broker.commit(5)
    assert done == ["one", "other"]
    assert broker.publisher.published_offset == 0
    assert [type(error) for error in broker.faults] == [KeyError]


def test_a_coordinator_resigns_when_its_log_directory_fails():
    """No metadata tells a replica that is offline another role: heartbeats would be answered here for as long
    as clients send them, beside the next coordinator."""
    broker = _Broker()
    broker.epoch = 5
    coordinated: list[tuple[str, int]] = []
    broker.fetchers.unfollow = lambda partition: None
    broker.groups.become_leader = lambda number, leader_epoch: coordinated.append(("leads", number))
    broker.groups.resign = lambda number: coordinated.append(("resigns", number))

    def partition(number: int, *, offline: bool) -> Any:
        tp = TopicPartition(OFFSETS_TOPIC, number)
        return SimpleNamespace(tp=tp, leader_epoch=3, is_leader=not offline, on_stopped=None)

    led, failed_before = partition(0, offline=False), partition(1, offline=True)
    broker.changes.leading = [led, failed_before]
    broker.commit(5)
    assert coordinated == [("leads", 0)]
    led.on_stopped(led)
    assert coordinated == [("leads", 0), ("resigns", 0)]
    assert failed_before.on_stopped is None


@pytest.mark.parametrize("many", [True, False], ids=["many logs to make", "few"])
@pytest.mark.parametrize("step", ["apply", "logs_to_create"])
def test_a_change_that_cannot_be_put_into_action_holds_up_none_after_it(step, many):
    async def main() -> None:
        broker = _Broker(asyncio.get_running_loop())
        broker.epoch = 5
        partitions = broker.partitions

        async def blocking(work):
            await asyncio.sleep(0)
            return work(MAY_BLOCK)

        broker.blocking = blocking
        partitions.add_created = lambda made: None
        made = SimpleNamespace(run=lambda may_block: None) if many else None
        partitions.logs_to_create = lambda delta, image: made if image.offset == 1 else None
        kept = getattr(partitions, step)

        def fails(delta, image):
            if image.offset == 1:
                raise KeyError("a bug")
            return kept(delta, image)

        setattr(partitions, step, fails)
        for _ in range(5):
            broker.commit(5)
            for _ in range(10):
                await asyncio.sleep(0)
        assert broker.offsets == ([0, 2, 3, 4] if step == "apply" else [0, 1, 2, 3, 4])
        assert [type(fault) for fault in broker.faults] == [KeyError]

    asyncio.run(main())


def test_what_could_have_no_files_is_made_again_later_and_later():
    broker = _Broker()
    broker.epoch = 5
    broker.partitions.needs_retry = True
    broker.commit(5)
    delays = []
    for _ in range(8):
        ((delay, again),) = broker.timers
        broker.timers.clear()
        delays.append(delay)
        again()
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    broker.partitions.needs_retry = False
    broker.timers.pop()[1]()
    assert broker.timers == []
    broker.partitions.needs_retry = True
    broker.commit(5)
    assert [delay for delay, _ in broker.timers] == [1]
    broker.publisher.close()
    assert broker.timers == []


def _topic(name: str, number: int, partitions: int) -> list[Any]:
    topic_id = UUID(int=number)
    return [TopicRecord(name=name, topic_id=topic_id)] + [
        PartitionRecord(partition_id=n, topic_id=topic_id, replicas=[NODE_ID], isr=[NODE_ID], leader=NODE_ID)
        for n in range(partitions)
    ]


def _replayed(image: MetadataImage, records: list[Any]) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    delta.offset = image.offset + 1
    return delta, delta.apply()


def test_a_change_of_very_many_partitions_is_cut_and_deletions_come_before_additions():
    _, before = _replayed(EMPTY_IMAGE, _topic("a", 10, STEP + 1) + _topic("b", 11, 3))
    gone = [RemoveTopicRecord(topic_id=UUID(int=n)) for n in (10, 11)]
    delta, image = _replayed(before, [*gone, *_topic("a", 12, 3 * STEP)])
    steps = steps_of(delta, image)
    sizes = [sum(map(len, step.delta.changed_partitions.values())) for step in steps]
    assert [len(step.deleted) for step in steps] == [STEP, 4] + [0] * (len(steps) - 2)
    assert [len(step.delta.deleted_topics) for step in steps] == [0, 0, 2] + [0] * (len(steps) - 3)
    assert max(sizes) <= STEP
    assert sum(sizes) == 3 * STEP
    assert [step.first for step in steps] == [True] + [False] * (len(steps) - 1)
    assert [step.last for step in steps] == [False] * (len(steps) - 1) + [True]
    merged = {n for step in steps for n in step.delta.changed_partitions.get(UUID(int=12), {})}
    assert merged == set(range(3 * STEP))


def test_new_topics_with_long_configurations_are_few_in_each_step():
    records = []
    for number in range(20):
        policy = ConfigRecord(
            resource_type=int(ResourceType.TOPIC),
            resource_name=f"t{number}",
            name="cleanup.policy",
            value=" " * (STEP // 4 * CONFIG_CHARS),
        )
        records += [*_topic(f"t{number}", number + 10, 1), policy]
    steps = steps_of(*_replayed(EMPTY_IMAGE, records))
    assert max(len(step.delta.changed_partitions) for step in steps) == 4
    assert sum(len(step.delta.changed_partitions) for step in steps) == 20


@in_loop
async def test_a_long_change_leaves_the_loop_to_others_and_what_follows_waits_for_it():
    broker = _Broker(asyncio.get_running_loop())
    broker.epoch = 5
    broker.commit(5)
    delta, image = _replayed(broker.image, _topic("a", 10, 3 * STEP + 1))
    broker.publisher.publish(delta, image)
    broker.image = image
    broker.commit(5)
    assert broker.offsets == [0, 1]  # its first part
    assert broker.publisher.published_offset == 0
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert broker.offsets[2:] in ([1], [1, 1])
    for _ in range(9):
        await asyncio.sleep(0)
    assert broker.publisher.published_offset == 2
    assert broker.offsets == [0, 1, 1, 1, 1, 2]


@in_loop
async def test_a_closed_publisher_leaves_a_long_change_where_it_is():
    broker = _Broker(asyncio.get_running_loop())
    broker.epoch = 5
    broker.commit(5)
    broker.publisher.publish(*_replayed(broker.image, _topic("a", 10, 3 * STEP)))
    broker.publisher.close()
    for _ in range(9):
        await asyncio.sleep(0)
    assert broker.offsets == [0, 1]
