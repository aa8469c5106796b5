"""A transaction ends for readers with its marker, once that is replicated."""

from __future__ import annotations

from data_plane.log.validation import AppendOrigin
from metadata_quorum.foundation.batch import encode_end_txn_marker
from tests.support.logs import NOW_MS, batch
from tests.unit.replication.cluster import Cluster, in_loop, until


@in_loop
async def test_a_marker_above_the_high_watermark_ends_nothing() -> None:
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]])
        leader = cluster.leader()
        opened = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        leader.append_as_leader(opened, acks=1, now=cluster.loop.time(), now_ms=NOW_MS)
        await until(lambda: leader.high_watermark == 1)
        assert leader.last_stable_offset == 0
        cluster.cuts |= {(2, 1)}
        for endpoint in cluster.brokers[2].endpoints:
            endpoint.break_off()
        abort = encode_end_txn_marker(
            commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=NOW_MS
        )
        leader.append_as_leader(
            bytearray(abort), acks=1, now=cluster.loop.time(), now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
        )
        assert (leader.log.log_end_offset, leader.high_watermark) == (2, 1)
        assert leader.last_stable_offset == 0
        cluster.cuts.clear()
        await until(lambda: leader.high_watermark == 2)
        assert leader.last_stable_offset == 2


@in_loop
async def test_ended_transactions_are_forgotten_where_nobody_reads_committed() -> None:
    """Nobody asks a follower for its last stable offset, nor a leader without consumers."""
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]])
        leader, follower = cluster.leader(), cluster.replica(2)
        commit = encode_end_txn_marker(
            commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=NOW_MS
        )
        for sequence in range(20):
            opened = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
            leader.append_as_leader(opened, acks=1, now=cluster.loop.time(), now_ms=NOW_MS)
            leader.append_as_leader(
                bytearray(commit),
                acks=1,
                now=cluster.loop.time(),
                now_ms=NOW_MS,
                origin=AppendOrigin.COORDINATOR,
            )
        await until(lambda: follower.high_watermark == 40)
        assert not leader.log.producers.unreplicated
        assert not follower.log.producers.unreplicated
