"""A broker's view of itself, for the console of another node: an API of ours, between brokers.

    console -> kraft/http/cluster_view -> NodeView to every broker -> here -> JSON

What only one node knows: of a partition its leader knows how far the others have come, of a group its
coordinator knows the offsets. Strangers do not get it: it asks for ClusterAction, and ApiVersions does not
list it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final
from uuid import UUID

from data_plane.coordinator.groups.classic.consumer_protocol import read_assignment
from data_plane.coordinator.groups.messages import GroupSummary, MemberSummary
from data_plane.coordinator.transactions.records import TransactionMetadata
from data_plane.replication.partition import Partition
from kraft.api.authz.checks import InHandler
from kraft.api.authz.raw_requests import is_cluster_action_authorized
from kraft.api.context import BrokerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow
from kraft.api.slices import in_slices
from kraft.net.connection import Buffers, ProtocolError
from kraft.wire import long_json
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.primitives import INT32
from metadata_quorum.foundation.supervision import awaited
from metadata_quorum.metadata.image import MetadataImage

VERSION: Final = 0
ANSWER_S: Final = 0.5
NOT_YET: Final = b""
"""Instead of a view that is still being made."""
KEPT_S: Final = 1.5
"""A view that somebody has not waited for: all consoles ask for it within a second."""
PER_SLICE: Final = 200
"""Partitions or groups that are looked at in one turn of the loop."""
POSITIONS_AS_ONE: Final = 10
"""So many members or offsets take the time of a group."""
BYTES_AS_ONE: Final = 128
"""So many bytes of what is assigned take that time, too: a client may assign topics without partitions."""
MOST_ASSIGNED_BYTES: Final = 32 * 1024
"""Of one classic group, read: as much as eight thousand partitions. Members beyond it are shown without."""
LONGEST_ID: Final = 256
"""Characters of a member's ids, which may be 32 KB each: in a view they are for people."""
MOST_TRANSACTIONS: Final = 500
"""Transactions that one coordinator lists."""
MOST_OPEN: Final = 20
"""Transactions that one partition lists: the oldest hold back the last stable offset."""


def handle(broker: BrokerContext, ctx: RequestContext, body: memoryview) -> asyncio.Future[Buffers]:
    """Raises `ProtocolError` for anybody but a node: the API is ours, and has no error response."""
    if not is_cluster_action_authorized(broker.node, ctx):
        raise ProtocolError(f"NodeView of {ctx.principal}, who may not CLUSTER_ACTION")
    return awaited(broker.node.loop, _answer(broker, ctx), "NodeView")


async def _answer(broker: BrokerContext, ctx: RequestContext) -> Buffers:
    """One view is made at a time, for all who ask meanwhile: that of a large broker takes tens of megabytes,
    and many who ask may be no brokers. Where it takes long, nothing is answered, which says that we live, and
    whoever asks again soon gets it."""
    made = broker.node_view
    if made is None:
        made = broker.node_view = awaited(broker.node.loop, _text(broker), "NodeView")
    await asyncio.wait((made,), timeout=ANSWER_S)
    return ctx.framed((made.result() if made.done() else NOT_YET,))


async def _text(broker: BrokerContext) -> bytes:
    loop = broker.node.loop
    began = loop.time()
    try:
        view = await node_view(broker)
        with broker.node.long_work.in_a_thread():
            return await loop.run_in_executor(None, long_json.encode, view)
    finally:
        if loop.time() - began < ANSWER_S:
            _forget(broker)
        else:
            loop.call_later(KEPT_S, _forget, broker)


def _forget(broker: BrokerContext) -> None:
    broker.node_view = None


async def node_view(broker: BrokerContext) -> dict[str, Any]:
    """What this node knows, as JSON has it."""
    node, now = broker.node, broker.node.loop.time()
    partitions, groups = list(broker.replica_manager), broker.group_coordinator.summaries()
    transactions = list(islice(broker.transaction_coordinator.unfinished(), MOST_TRANSACTIONS))
    work = node.long_work
    return {
        "node_id": node.node_id,
        "state": broker.lifecycle.state.name.lower(),
        "metadata_offset": node.image.offset,
        "loop": {"stalls": node.loop_health.stalls, "longest_ms": node.loop_health.longest_ms},
        "faults": dict(node.faults),
        "log_dirs": [{"path": d.path, "online": d.online} for d in broker.replica_manager.logs.dirs],
        "replicas": [
            _replica(each, now) async for each in in_slices(work, partitions, PER_SLICE) if not each.removed
        ],
        "groups": [_group(each, node.image) async for each in in_slices(work, groups, PER_SLICE, _weight)],
        "transactions": [
            _transaction(name, known)
            async for name, known in in_slices(
                work, transactions, PER_SLICE, lambda each: 1 + len(each[1].partitions) // POSITIONS_AS_ONE
            )
        ],
    }


def _replica(partition: Partition, now: float) -> dict[str, Any]:
    log, leader = partition.log, partition.leader
    replica: dict[str, Any] = {
        "topic": partition.tp.topic,
        "partition": partition.tp.partition,
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "high_watermark": partition.high_watermark,
        "size": log.size,
        "offline": partition.offline,
    }
    if leader is not None:
        replica["isr"] = list(leader.isr)
        replica["leader_epoch"] = leader.leader_epoch
        replica["min_isr"] = leader.min_isr
        replica["open_transactions"] = [list(each) for each in log.producers.open_transactions(MOST_OPEN)]
        replica["followers"] = {
            each.broker_id: {
                "end": each.log_end_offset,
                "caught_up_s": None if each.last_caught_up < 0 else round(now - each.last_caught_up, 1),
            }
            for each in leader.followers.values()
        }
    return replica


def _weight(group: GroupSummary) -> int:
    positions = len(group.members) + len(group.offsets)
    assigned_bytes = sum(_assigned_bytes(each.assigned) for each in group.members)
    return 1 + positions // POSITIONS_AS_ONE + assigned_bytes // BYTES_AS_ONE


def _assigned_bytes(assigned: Mapping[UUID, frozenset[int]] | bytes) -> int:
    if isinstance(assigned, bytes):
        return min(len(assigned), MOST_ASSIGNED_BYTES)
    return INT32.size * sum(map(len, assigned.values()))


def _group(group: GroupSummary, image: MetadataImage) -> dict[str, Any]:
    left = MOST_ASSIGNED_BYTES

    def assigned(member: MemberSummary) -> dict[str, list[int]] | None:
        nonlocal left
        if isinstance(member.assigned, bytes):
            left -= len(member.assigned)
            if left < 0:
                return None
        return _assigned(member.assigned, image)

    return {
        "id": group.listed.group_id,
        "type": group.listed.type.value,
        "state": group.listed.state,
        "members": [
            {
                "member_id": each.member_id[:LONGEST_ID],
                "client_id": each.client_id[:LONGEST_ID],
                "client_host": each.client_host,
                "assigned": assigned(each),
            }
            for each in group.members
        ],
        "offsets": [[tp.topic, tp.partition, kept.offset] for tp, kept in group.offsets.items()],
    }


def _assigned(
    assigned: Mapping[UUID, frozenset[int]] | bytes, image: MetadataImage
) -> dict[str, list[int]] | None:
    """By topic; None if only the group's own clients understand it."""
    if isinstance(assigned, bytes):
        try:
            named = read_assignment(assigned)
        except ValueError:
            return None
    else:
        topics = ((image.topic(topic_id), numbers) for topic_id, numbers in assigned.items())
        named = {topic.name: numbers for topic, numbers in topics if topic is not None}
    return {name: sorted(numbers) for name, numbers in named.items()}


def _transaction(name: str, known: TransactionMetadata) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "producer_id": known.producer_id,
        "producer_epoch": known.producer_epoch,
        "state": known.state.label,
        "started_ms": known.started_ms,
        "timeout_ms": known.timeout_ms,
        "partitions": [list(tp) for tp in sorted(known.partitions)],
    }


ROWS: Final = (
    ApiRow(
        ApiKey.NODE_VIEW,
        (VERSION, VERSION),
        (InHandler("ClusterAction on Cluster"),),
        raw_broker=handle,
        internal=True,
    ),
)
