"""Jobs `rebalance` and `commit`: a group of many members, and offsets committed at a fixed rate.

No stock client can be a thousand members in one process, so these use our own client, with the
same requests to either system. A member is a connection of its own (a broker answers one JoinGroup per
connection at a time).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.open_loop import OpenLoop
from benchmarks.percentiles import summary
from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import ErrorCode

CONNECTIONS: Final = 20
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 120_000
PATIENCE_S: Final = 120.0
RETRY_S: Final = 0.1
DRAIN_S: Final = 5.0


@dataclass(frozen=True)
class RebalanceJob:
    bootstrap: str
    group: str
    topic: str
    members: int
    rounds: int


@dataclass(frozen=True)
class CommitJob:
    bootstrap: str
    group: str
    topic: str
    partitions: int
    rate: int
    seconds: float


class BenchmarkMember:
    """One member of a classic group, by the consumer protocol's requests."""

    def __init__(self, client: PeerClient, job: RebalanceJob) -> None:
        self._client = client
        self._job = job
        self._id = ""

    async def join_and_sync(self, round_number: int) -> None:
        """Until it has its assignment. Metadata is new in every round: that is what makes a rebalance."""
        joined = await self._join(round_number)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            joined = await self._join(round_number)
        _expect_success("JoinGroup", joined.error_code)
        self._id = joined.member_id
        assignments = [{"member_id": each.member_id, "assignment": b"one"} for each in joined.members]
        synced = await self._client.request(
            ApiKey.SYNC_GROUP,
            5,
            {
                "group_id": self._job.group,
                "generation_id": joined.generation_id,
                "member_id": self._id,
                "protocol_type": "consumer",
                "protocol_name": "bench",
                "assignments": assignments,  # empty but for the leader's
            },
            timeout_s=PATIENCE_S,
        )
        _expect_success("SyncGroup", synced.error_code)

    async def _join(self, round_number: int) -> Message:
        return await self._client.request(
            ApiKey.JOIN_GROUP,
            9,
            {
                "group_id": self._job.group,
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "member_id": self._id,
                "protocol_type": "consumer",
                "protocols": [{"name": "bench", "metadata": b"%d" % round_number}],
            },
            timeout_s=PATIENCE_S,
        )


def rebalance(job: RebalanceJob) -> dict[str, Any]:
    """All members join; then so many times all of them rejoin at once. Seconds of each such round, from
    the first JoinGroup to the last SyncGroup's answer."""
    return asyncio.run(_rebalance(job))


async def _rebalance(job: RebalanceJob) -> dict[str, Any]:
    address = await _coordinator(job.bootstrap, job.group)
    clients = await _connect(address, job.members)
    try:
        members = [BenchmarkMember(client, job) for client in clients]
        seconds = []
        for number in range(job.rounds + 1):
            started = time.monotonic()
            await asyncio.gather(*(member.join_and_sync(number) for member in members))
            seconds.append(time.monotonic() - started)
    finally:
        for client in clients:
            client.close()
    return {"seconds": seconds[1:]}  # the first includes group.initial.rebalance.delay.ms


def commit(job: CommitJob) -> dict[str, Any]:
    """OffsetCommit of one partition each, at `rate` to one coordinator; latencies from when each was due."""
    return asyncio.run(_commit(job))


async def _commit(job: CommitJob) -> dict[str, Any]:
    address = await _coordinator(job.bootstrap, job.group)
    clients = await _connect(address, CONNECTIONS)
    latencies: list[float] = []
    errors: list[int] = []

    async def one(index: int, due: float) -> None:
        answer = await clients[index % len(clients)].request(
            ApiKey.OFFSET_COMMIT,
            8,
            {
                "group_id": job.group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [
                    {
                        "name": job.topic,
                        "partitions": [
                            {"partition_index": index % job.partitions, "committed_offset": index}
                        ],
                    }
                ],
            },
            timeout_s=PATIENCE_S,
        )
        latencies.append(time.monotonic() - due)
        code = answer.topics[0].partitions[0].error_code
        if code:
            errors.append(code)

    try:
        await one(0, time.monotonic())
        latencies.clear()
        schedule = OpenLoop(time.monotonic() + 0.05, job.rate, int(job.rate * job.seconds))
        waiting: list[asyncio.Task[None]] = []
        while not schedule.finished:
            now = time.monotonic()
            waiting += [asyncio.create_task(one(i, schedule.due_at(i))) for i in schedule.take_due(now)]
            await asyncio.sleep(schedule.wait_s(time.monotonic()))
        _, late = await asyncio.wait(waiting, timeout=DRAIN_S)
        # What is still unanswered counts with the time that it has waited by now.
        ended = time.monotonic()
        latencies += [ended - schedule.due_at(i) for i, task in enumerate(waiting) if task in late]
        for task in late:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    finally:
        for client in clients:
            client.close()
    return {"latency_s": summary(latencies), "failed": len(errors), "unfinished": len(late)}


async def _connect(address: Address, count: int) -> list[PeerClient]:
    loop = asyncio.get_running_loop()
    clients: list[PeerClient] = []
    for _ in range(0, count, 100):  # a listener's backlog is short
        some = min(100, count - len(clients))
        clients += await asyncio.gather(
            *(PeerClient.connect(loop, address, "bench", timeout_s=30.0) for _ in range(some))
        )
    return clients


async def _coordinator(bootstrap: str, group: str) -> Address:
    """Where the group's coordinator is, once there is one (the offsets topic may have to be made first)."""
    host, _, port = bootstrap.split(",")[0].partition(":")
    loop = asyncio.get_running_loop()
    client = await PeerClient.connect(loop, Address(host, int(port)), "bench", timeout_s=30.0)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = await client.request(
                ApiKey.FIND_COORDINATOR,
                4,
                {"key_type": int(CoordinatorType.GROUP), "coordinator_keys": [group]},
            )
            (coordinator,) = answer.coordinators
            if coordinator.error_code == 0:
                return Address(coordinator.host, coordinator.port)
            await asyncio.sleep(RETRY_S)
    finally:
        client.close()
    raise TimeoutError(f"group {group} has no coordinator")


def _expect_success(what: str, code: int) -> None:
    if code:
        raise RuntimeError(f"{what} was answered with error {code}")
