"""RecordCounts: how many records a reader still gets from given offsets on. An API of ours, for lags.

    the console's node (http/group_lags)  ┐
    kraft group describe, kraft doctor    ┴─> leader of the partitions -> here -> data_plane/log/record_count

Headers are read in the executor, at most `MOST_BATCHES` of them for one request, and each once as long as the
partition has the same leader and is not compacted: what a first answer could not count, a later one can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Final

from data_plane.log.record_count import RecordCounter
from data_plane.replication.partition import Partition
from kraft.api.authz.authorization import RequestPrincipal
from kraft.api.authz.checks import InHandler
from kraft.api.context import BrokerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow
from kraft.api.slices import in_slices
from kraft.net.connection import Buffers, ProtocolError
from kraft.wire.api_keys import ApiKey
from kraft.wire.record_counts import VERSION, Counts, Offsets, PartitionCount, decode_offsets, encode_counts
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.supervision import awaited
from metadata_quorum.security.acls import AclOperation, AclResourceType

MOST_BATCHES: Final = 10_000
"""Headers for one request: some 50 ms of a thread."""
MOST_BYTES: Final = 256 * 1024
"""The largest request: some 15,000 partitions."""
PER_SLICE: Final = 100
"""Partitions between two turns of the loop."""
OFFSETS_PER_SLICE: Final = 2_000
"""Offsets of one partition in one turn of the loop: some milliseconds."""
LONG_BYTES: Final = 32 * 1024
"""Longer requests are answered one at a time."""
MEMORY_PER_BYTE: Final = 75
"""What a byte of a request takes at most, decoded and answered."""


async def count_records(broker: BrokerContext, asked: Offsets) -> Counts:
    """None of partitions that are led elsewhere."""
    found: dict[TopicPartition, PartitionCount] = {}
    left_to_look_at = MOST_BATCHES
    async for tp, offsets in in_slices(broker.node.long_work, list(asked.items()), PER_SLICE):
        partition = _led(broker, tp)
        if partition is None or not offsets:
            continue
        counter = broker.record_counters.counter_of(partition, min(offsets))
        left_to_look_at -= await _look(broker, partition, counter, left_to_look_at)
        end, start = partition.high_watermark, partition.log.log_start_offset
        each_offset = in_slices(broker.node.long_work, offsets, OFFSETS_PER_SLICE)
        left = [counter.left(max(each, start), end) async for each in each_offset]
        found[tp] = PartitionCount(end, left)
    return found


def _led(broker: BrokerContext, tp: TopicPartition) -> Partition | None:
    try:
        partition = broker.replica_manager.get(*tp)
    except BrokerError:
        return None
    return None if partition.leader is None or partition.offline else partition


async def _look(broker: BrokerContext, partition: Partition, counter: RecordCounter, most: int) -> int:
    """How many batches were looked at."""
    work = counter.next_work(partition.log, partition.last_stable_offset, most) if most > 0 else None
    if work is None:
        return 0
    async with broker.searches:
        counted = await broker.node.blocking(work.run)
    broker.record_counters.add(counter, counted)
    return counted.batches


# ---- the API -----------------------------------------------------------------------------------------


def handle(broker: BrokerContext, ctx: RequestContext, body: memoryview) -> asyncio.Future[Buffers]:
    """Raises `ProtocolError`: the API is ours, and has no error response."""
    if len(body) > MOST_BYTES:
        raise ProtocolError(f"RecordCounts of {len(body)} bytes")
    started = ctx.connection.started()
    started.keep()
    started.charge(MEMORY_PER_BYTE * len(body))
    answer = awaited(broker.node.loop, _answer(broker, ctx, body), "RecordCounts")
    answer.add_done_callback(lambda _: started.let_go())
    return answer


async def _answer(broker: BrokerContext, ctx: RequestContext, body: memoryview) -> Buffers:
    run = partial(broker.node.loop.run_in_executor, None)
    async with broker.long_record_counts if len(body) > LONG_BYTES else nullcontext():
        asked = await run(_offsets, body)
        may_see = _may_describe(broker.node, ctx)
        by_partition = in_slices(broker.node.long_work, asked.items(), PER_SLICE)
        visible = {tp: offsets async for tp, offsets in by_partition if may_see(tp.topic)}
        counts = await count_records(broker, visible)
        with broker.node.long_work.in_a_thread():
            return ctx.framed((await run(encode_counts, counts),))


def _may_describe(node: NodeContext, ctx: RequestContext) -> Callable[[str], bool]:
    """Which topics the requester may describe; a node of the cluster may ask for all."""
    if node.authorizer is None:
        return lambda topic: True
    requester = RequestPrincipal.of(node.authorizer, ctx)
    if requester.is_authorized(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER):
        return lambda topic: True
    return lambda topic: requester.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def _offsets(body: memoryview) -> Offsets:
    """Raises `ProtocolError`."""
    try:
        return decode_offsets(body)
    except ValueError as error:
        raise ProtocolError(f"RecordCounts: {error}") from None


ROWS: Final = (
    ApiRow(
        ApiKey.RECORD_COUNTS,
        (VERSION, VERSION),
        (InHandler("Describe on Topic, or ClusterAction on Cluster"),),
        raw_broker=handle,
        internal=True,
    ),
)
