"""The lag of groups in records: what the leaders of the partitions count from the groups' offsets on.

    views of coordinators: groups' offsets -> RecordCounts to each leader -> {partition: {offset: records}}

/metrics tells the lag that kafka-exporter tells, in offsets; this one is for people.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from kraft.api.context import BrokerContext
from kraft.api.record_counts import MOST_BYTES, count_records
from kraft.wire.api_keys import ApiKey
from kraft.wire.record_counts import VERSION, Left, decode_counts, encode_offsets
from kraft.wire.record_counts import Counts as Answer
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.metadata.image import MetadataImage

ANSWER_S: Final = 1.0
BYTES_PER_OFFSET: Final = 21
BYTES_PER_PARTITION: Final = 24
"""In a request, beside a topic's name. What has no room there is not asked for: of that the lag is told in
offsets."""

Json = dict[str, Any]
Offsets = dict[TopicPartition, list[int]]


class Counted(NamedTuple):
    """What the leader of one partition has counted."""

    high_watermark: int
    left: Mapping[int, Left]


Counts = Mapping[TopicPartition, Counted]


async def count_for_groups(broker: BrokerContext, views: Mapping[int, Json]) -> Counts:
    """What does not answer in time is missing."""
    node = broker.node
    asked = await node.loop.run_in_executor(None, by_leader, views, node.image)
    answers = await asyncio.gather(*(_ask(broker, leader, offsets) for leader, offsets in asked.items()))
    return {
        tp: Counted(count.high_watermark, dict(zip(offsets[tp], count.left, strict=True)))
        for offsets, counts in zip(asked.values(), answers, strict=True)
        for tp, count in counts.items()
        if tp in offsets and len(offsets[tp]) == len(count.left)
    }


def by_leader(views: Mapping[int, Json], image: MetadataImage) -> dict[int, Offsets]:
    """The offsets of all groups."""
    wanted: dict[TopicPartition, set[int]] = {}
    for tp, offset in _committed(views):
        wanted.setdefault(tp, set()).add(offset)
    found: dict[int, Offsets] = {}
    taken = Counter[int]()
    for tp, offsets in wanted.items():
        registration = image.partition(tp)
        if registration is not None and registration.leader >= 0:
            takes = BYTES_PER_PARTITION + len(tp.topic) + BYTES_PER_OFFSET * len(offsets)
            if taken[registration.leader] + takes <= MOST_BYTES:
                taken[registration.leader] += takes
                found.setdefault(registration.leader, {})[tp] = sorted(offsets)
    return found


def _committed(views: Mapping[int, Json]) -> Iterator[tuple[TopicPartition, int]]:
    for view in views.values():
        for group in view["groups"]:
            for topic, number, offset in group["offsets"]:
                yield TopicPartition(topic, number), offset


async def _ask(broker: BrokerContext, leader: int, offsets: Offsets) -> Answer:
    if leader == broker.node.node_id:
        return await count_records(broker, offsets)
    run = partial(broker.node.loop.run_in_executor, None)
    asked = await run(encode_offsets, offsets)
    try:
        answer = await broker.console_channels.exchange(
            leader, ApiKey.RECORD_COUNTS, VERSION, (asked,), ANSWER_S
        )
        return await run(decode_counts, answer)
    except (OSError, ValueError):
        return {}


def position(topic: str, partition: int, offset: int, end: int | None, counts: Counts) -> Json:
    """A group's place in a partition, as JSON has it. `end`: the high watermark, where somebody told it."""
    counted = counts.get(TopicPartition(topic, partition))
    left = None if counted is None else counted.left.get(offset)
    if counted is not None and left is not None:
        end = counted.high_watermark
    elif end is not None:
        left = (max(end - offset, 0), end <= offset)
    records, is_exact = (None, None) if left is None else left
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "end": end,
        "lag": records,
        "lag_exact": is_exact,
    }
