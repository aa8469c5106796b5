"""Bugs planted on purpose, to see that the checker finds them. For tests of the checker only.

Each is one rule of replication left out: the product's own code, with one function exchanged in this process
(chaos/live/process.py, `--plant NAME`). The product knows nothing of it. All nodes of a cluster are given the
same plant: decisions of the controller are made on each of them.

`shows` names the anomalies that the checker must report where a cluster is led into the bug, as
tests/chaos/test_planted_bugs.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

import kraft.node.broker_role
from data_plane.coordinator.groups.classic import group, request_checks
from data_plane.coordinator.groups.classic.group_metadata import ClassicGroupMetadata
from data_plane.coordinator.groups.classic.members import ClassicGroupMember
from data_plane.coordinator.groups.messages import CommitOffsets
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.marker_writer import MarkerWriter
from data_plane.coordinator.transactions.transaction_state_manager import (
    TransactionResult,
    TransactionStateManager,
)
from data_plane.log.append import AppendInfo
from data_plane.log.checkpoints import PartitionMetadata
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.producers import ProducerStateManager
from data_plane.log_manager.log_dirs import LogDir
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.replication.delayed_produce import Appended
from data_plane.replication.leader_state import (
    AlterPartitionResult,
    FollowerReplica,
    IsrOutcome,
    LeaderState,
    PendingIsrChange,
)
from data_plane.replication.partition import Partition
from fetch.fetcher import FetcherContext
from fetch.follower import TRUNCATE_TO_HIGH_WATERMARK
from fetch.messages import FetchRequest, FetchResponse
from kraft.api import fetch, produce
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.net.connection import Buffers
from kraft.variant import variant
from metadata_quorum.decisions import elections
from metadata_quorum.foundation.batch import iter_headers
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, ExitCode, FatalError
from metadata_quorum.foundation.model import NO_LEADER, PartitionRegistration, TopicPartition


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug that can be planted."""

    apply: Callable[[], None]
    breaks: str
    """The rule that no longer holds."""
    shows: tuple[str, ...]


PLANTS: Final[dict[str, PlantedBug]] = {}


def plant(name: str) -> None:
    """Break this process for good. Raises FatalError where there is no such plant, and where the code is
    compiled: it would not call what is put in the place of its methods."""
    if name not in PLANTS:
        raise FatalError(ExitCode.USAGE, f"no plant is named {name}; there are {', '.join(PLANTS)}")
    if variant() == "compiled":
        raise FatalError(ExitCode.USAGE, "bugs are planted in Python, and this is compiled: make pure")
    PLANTS[name].apply()


def _named(name: str, breaks: str, *shows: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(apply: Callable[[], None]) -> Callable[[], None]:
        PLANTS[name] = PlantedBug(apply, breaks, shows)
        return apply

    return register


def _exchange(owner: Any, name: str, value: Any) -> None:
    getattr(owner, name)  # what the product no longer has is an error here, not a new attribute
    setattr(owner, name, value)


# --- acknowledging ------------------------------------------------------------------------------


@_named("acknowledge-before-isr", "acks=all: every in-sync replica has it", "unseen", "lost-write")
def acknowledge_before_isr() -> None:
    """acks=all is answered when the leader has appended: records that are lost with the leader were
    acknowledged."""

    def at_once(
        appended: Sequence[Appended],
        *,
        timer: WheelTimer,
        timeout: float,
        on_done: Callable[[list[ErrorCode]], None],
    ) -> None:
        on_done([ErrorCode.NONE] * len(appended))

    _exchange(produce, "await_replication", at_once)


@_named("misreport-offsets", "an ack names the record's offset", "send-poll-mismatch")
def misreport_offsets() -> None:
    """The offset in an ack is one too high: there lies another value, or will."""
    append = Partition.append_as_leader

    def misreported(self: Partition, records: bytearray | memoryview, **how: Any) -> AppendInfo:
        info = append(self, records, **how)
        return info._replace(first_offset=info.first_offset + 1)

    _exchange(Partition, "append_as_leader", misreported)


@_named("refuse-what-is-kept", "what was refused is nowhere", "G1a")
def refuse_what_is_kept() -> None:
    """Every second record is appended and then refused for good."""
    append, count = Partition.append_as_leader, 0

    def refused(self: Partition, records: Any, **how: Any) -> AppendInfo:
        nonlocal count
        done = append(self, records, **how)
        count += "origin" not in how  # a client's
        if "origin" not in how and count % 2 == 0:
            raise BrokerError(ErrorCode.INVALID_RECORD, "refused, though it is kept")
        return done

    _exchange(Partition, "append_as_leader", refused)


@_named("forget-producer-state", "a sequence number is appended once", "duplicate")
def forget_producer_state() -> None:
    """No batch is recognised as one that was sent before: a retry is appended again."""
    _exchange(ProducerStateManager, "check", lambda self, header: None)


# --- in sync ------------------------------------------------------------------------------------


@_named("join-isr-too-early", "who is in the ISR has all below the high watermark", "unseen")
def join_isr_too_early() -> None:
    """A follower is proposed for the ISR with its first fetch, whatever it holds: it may be elected, and
    its leader's log is then truncated to its own."""

    def expand(self: LeaderState, follower: FollowerReplica, high_watermark: int) -> PendingIsrChange | None:
        if follower.in_maximal_isr or self.change is not None or not self._may_join(follower):
            return None
        follower.in_maximal_isr = True
        follower.last_caught_up = follower.last_fetch
        return self._propose((*self.isr, follower.broker_id), follower.broker_id)

    _exchange(LeaderState, "expand", expand)


@_named("skip-fencing", "one leader per partition: the others are fenced", "unseen", "send-poll-mismatch")
def skip_fencing() -> None:
    """A leader that was deposed leads on, and takes being fenced for consent: it shrinks the ISR to
    itself, and completes acks=all alone, beside the elected leader."""
    become_follower, take_answer = Partition.become_follower, LeaderState.handle_response

    def lead_on(self: Partition, registration: PartitionRegistration) -> bool:
        return False if self.leader is not None else become_follower(self, registration)

    def insist(self: LeaderState, change: PendingIsrChange, answer: AlterPartitionResult) -> IsrOutcome:
        if self.change is change and answer.error is ErrorCode.FENCED_LEADER_EPOCH:
            self._commit(change.isr, self.partition_epoch)
            return IsrOutcome.COMMITTED
        return take_answer(self, change, answer)

    _exchange(Partition, "become_follower", lead_on)
    _exchange(LeaderState, "handle_response", insist)


@_named("elect-outside-isr", "the leader comes from the ISR", "unseen")
def elect_outside_isr() -> None:
    """Where no replica of the ISR is alive, any live one is elected, though unclean election is off."""
    elect = elections._elect

    def anyone(before: PartitionRegistration, isr: Any, elr: Any, acceptable: Any, election: Any) -> Any:
        outcome = elect(before, isr, elr, acceptable, election)
        alive = [replica for replica in before.replicas if acceptable(replica)]
        if outcome.leader == NO_LEADER and alive:
            return elections._Outcome(alive[0], (alive[0],))
        return outcome

    _exchange(elections, "_elect", anyone)


# --- logs ---------------------------------------------------------------------------------------


@_named("truncate-to-hw", "what is committed is never truncated", "unseen")
def truncate_to_high_watermark() -> None:
    """A follower of a new leader truncates its log to its high watermark, which it learns one fetch late,
    instead of where leader epochs say that the logs part (R5; Kafka before KIP-101)."""
    with_rules = partial(FetcherContext, rules=TRUNCATE_TO_HIGH_WATERMARK)
    _exchange(kraft.node.broker_role, "FetcherContext", with_rules)


@_named("lose-on-restart", "recovery keeps every whole batch", "unseen")
def lose_on_restart() -> None:
    """After a crash recovery truncates the last batch, though it is whole."""
    opened = LogDir._open

    def truncated(
        self: LogDir,
        tp: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        now_ms: int,
        may_block: MayBlock,
        *,
        stored: PartitionMetadata | None = None,
        sync: bool = True,
    ) -> UnifiedLog:
        log = opened(self, tp, topic_id, config, now_ms, may_block, stored=stored, sync=sync)
        if not self.clean and log.log_end_offset > log.log_start_offset:
            work = log.prepare_truncation(log.log_end_offset - 1)
            if work is not None:
                work.run(may_block)
                log.truncate_to(work)
        return log

    _exchange(LogDir, "_open", truncated)


# --- reading ------------------------------------------------------------------------------------


@_named("read-beyond-hw", "consumers see what is committed", "vanished-read", "inconsistent-offsets")
def read_beyond_high_watermark() -> None:
    """Consumers read to the end of the leader's log: what they have seen may be truncated later."""

    def to_the_end(self: Partition, *, for_follower: bool, committed_only: bool) -> int:
        return self.log.log_end_offset

    _exchange(Partition, "read_limit", to_the_end)


@_named("skip-records", "a consumer is given every record", "int-poll-skip")
def skip_records() -> None:
    """Of every answer to a consumer with three batches or more, the second is missing."""

    def without_second(records: memoryview, starts: list[int]) -> bytes:
        return bytes(records[: starts[1]]) + bytes(records[starts[2] :])

    _change_what_consumers_get(without_second)


@_named("swap-offsets", "an offset means one record", "int-nonmonotonic-poll", "send-poll-mismatch")
def swap_offsets() -> None:
    """In every answer to a consumer with three batches or more, the first two have each other's offset."""

    def swapped(records: memoryview, starts: list[int]) -> bytes:
        changed, second = bytearray(records), starts[1]
        changed[:8], changed[second : second + 8] = changed[second : second + 8], changed[:8]
        return bytes(changed)

    _change_what_consumers_get(swapped)


def _change_what_consumers_get(change: Callable[[memoryview, list[int]], bytes]) -> None:
    """`change` is given at least three batches, and where they begin."""
    write = fetch._written

    def written(
        node: NodeContext, ctx: RequestContext, request: FetchRequest, response: FetchResponse
    ) -> Buffers:
        for each in () if request.from_follower else response.partitions:
            if each.records:
                starts = [position for position, _ in iter_headers(each.records)]
                if len(starts) > 2:
                    each.records = memoryview(change(each.records, starts))
        return write(node, ctx, request, response)

    _exchange(fetch, "_written", written)


# --- transactions -------------------------------------------------------------------------------


@_named("show-what-is-open", "read_committed ends at the last stable offset", "G1a", "intermediate-read")
def show_what_is_open() -> None:
    """Consumers that read committed are given what is open, too: it may be aborted yet."""
    limit = Partition.read_limit

    def to_the_high_watermark(self: Partition, *, for_follower: bool, committed_only: bool) -> int:
        return limit(self, for_follower=for_follower, committed_only=False)

    _exchange(Partition, "read_limit", to_the_high_watermark)


@_named("drop-abort-marker", "every partition of a transaction learns its end", "hanging-transaction")
def drop_abort_marker() -> None:
    """Where a transaction is aborted, no marker is written, and the coordinator gets a success: the last
    stable offset stays there for ever."""
    write = MarkerWriter.write

    async def write_commits(
        self: MarkerWriter, producer: Any, epoch: int, partitions: Any, *, commit: bool, **rest: Any
    ) -> dict[TopicPartition, ErrorCode]:
        if not commit:
            return dict.fromkeys(partitions, ErrorCode.NONE)
        return await write(self, producer, epoch, partitions, commit=commit, **rest)

    _exchange(MarkerWriter, "write", write_commits)


# --- groups -------------------------------------------------------------------------------------


@_named("take-late-commits", "who commits is a member, in its group's generation", "stale-commit")
def take_late_commits() -> None:
    """The commit of one that has been replaced is taken: it may take back what its successor committed."""
    look = request_checks.check_commit

    def take(metadata: ClassicGroupMetadata, request: CommitOffsets) -> ClassicGroupMember | ErrorCode:
        found = look(metadata, request)
        is_late = found in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        return ErrorCode.NONE if is_late else found

    _exchange(group, "check_commit", take)


@_named("forget-fencing", "whoever takes an id over fences its former producer", "zombie-write")
def forget_fencing() -> None:
    """A new producer of a transactional id is given its epoch; the last one's transaction stays open."""
    init = TransactionStateManager.init_producer_id

    def again(self: TransactionStateManager, transactional_id: str, *how: Any) -> TransactionResult:
        known = self._transactions.get(transactional_id)
        if known is None:
            return init(self, transactional_id, *how)
        ticket = how[-2]
        return TransactionResult(
            replies=[(ticket, ProducerIdAndEpoch(known.producer_id, known.producer_epoch))]
        )

    _exchange(TransactionStateManager, "init_producer_id", again)
