"""A range of one partition, from its leader to Arrow: what a task of a Spark query does.

    read_range(properties, topic, partition, start, end) -> Iterator[pyarrow.RecordBatch]

The next request is sent before the last response is decoded, so that the broker works while we do, and no
more than two responses are in memory. Changes of leaders are followed. The range always ends: where records
are deleted (retention, a truncated log, a re-created topic) that is a `DataLossError`, or, with
`failOnDataLoss` off, a warning and a smaller result; where no leader answers for `timeout_s`, an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

import pyarrow as pa

from kraft.wire.fast_fetch import FetchedPartition
from metadata_quorum.foundation.batch import BATCH_OVERHEAD, CorruptBatchError, read_header
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition
from spark_connector.connections import (
    FIRST_BACKOFF_S,
    MAX_BACKOFF_S,
    ClusterClient,
    cluster_client,
)
from spark_connector.decode import MAX_BYTES, MAX_ROWS, Aborted, Batch, Decoder, whole_batches
from spark_connector.errors import DataLossError, Retry, SourceError
from spark_connector.fetched_data import FetchedData
from spark_connector.fetching import Fetching
from spark_connector.leaders import RETRIABLE, UNKNOWN_TOPIC, KnownLeader, PartitionLeader
from spark_connector.offsets import EARLIEST, LATEST

DEFAULT_TIMEOUT_S: Final = 120.0
FIRST_FETCH_BYTES: Final = 1024 * 1024
"""Many queries need a few rows only, and get them sooner this way."""
LEAST_FETCH_BYTES: Final = 16 * 1024
FIRST_RECORD_BYTES: Final = 512
"""How large a record is thought to be before one has been seen. The broker sends whole batches anyway."""
MAX_FETCH_BYTES: Final = 2**31 - 1
SPARE: Final = 1.25
"""Records behind may be larger than those before."""
NO_REPLICA: Final = -1
LOSS_PATIENCE_S: Final = 10.0
"""How long a range's end may be missing, or its topic, before it counts as lost, whatever the timeout is: a
new leader learns the high watermark a little later, and one that is cut off knows an old one."""

_log = logging.getLogger(__name__)


def read_range(
    properties: Mapping[str, str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    topic_id: UUID | None = None,
    leader: KnownLeader | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records with offsets from `start` up to, not including, `end`; those of open and aborted
    transactions too, unless the properties have `isolation.level=read_committed`. `topic_id`: of the topic
    that the offsets belong to; a re-created one of the same name has other records. `leader`: as the range
    was planned; without it the cluster is asked, and nothing is read that was kept from other ranges.

    Raises `DataLossError`, `CorruptBatchError`, and `SourceError` for all else.
    """
    cluster = cluster_client(properties)
    decoder = Decoder(
        topic,
        partition,
        include_headers=include_headers,
        check_crc=cluster.settings.check_crc,
        max_rows=max_rows,
        max_bytes=max_bytes,
    )
    answers = _Answers(
        cluster,
        TopicPartition(topic, partition),
        start,
        end,
        fail_on_data_loss=fail_on_data_loss,
        timeout_s=timeout_s,
        topic_id=topic_id,
        leader=leader,
    )
    try:
        for first, batches, aborted in answers:
            yield from decoder.decode(batches, first, end, aborted)
    finally:
        answers.close()


class _Gone(Retry):
    """The rest of the range seems to be deleted; it is, if that does not change."""


class _Lost(Exception):
    """Records up to an offset are deleted: (that offset, why)."""


class _Answers:
    """The batches of a range, from the current leader, one response at a time."""

    def __init__(
        self,
        cluster: ClusterClient,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        fail_on_data_loss: bool,
        timeout_s: float,
        topic_id: UUID | None,
        leader: KnownLeader | None,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._position = start
        self._end = end
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout_s = timeout_s
        self._largest_batch_bytes = 0  # of those that an answer was too small for
        seen = cluster.record_bytes.get(partition, FIRST_RECORD_BYTES)
        self._fetch_bytes = self._needed_bytes(seen, FIRST_FETCH_BYTES)
        self._planned = None if leader is None else cluster.learn_leader(partition, leader)
        self._leader: PartitionLeader | None = None
        self._topic_id = topic_id  # else of the first answer: what was known before may be old
        self._fetching: Fetching | None = None
        self._failures = _Failures()

    def __iter__(self) -> Iterator[tuple[int, list[Batch], Aborted]]:
        """Whole batches, of which the first may begin before the offset that counts; that offset; and the
        aborted transactions among them. Retention, too, moves the log's start into a batch."""
        while self._position < self._end:
            if kept := self._kept():
                first, self._position = self._position, kept[-1].header.next_offset
                yield first, kept, ()
                continue
            try:
                answer = self._answer()
                batches = self._batches(answer)
            except Retry as reason:
                self._try_again(reason)
                continue
            except _Lost as lost:
                self._lose(*lost.args)
                continue
            if batches:
                assert self._leader is not None
                self._topic_id = self._leader.topic_id
                self._failures = _Failures()
                first, self._position = self._position, batches[-1].header.next_offset
                record_bytes = self._cluster.record_bytes[self._partition] = _record_bytes(batches)
                self._fetch_bytes = self._needed_bytes(record_bytes, MAX_FETCH_BYTES)
                if self._position < self._end:
                    self._send()
                yield first, batches, answer.aborted_transactions  # and back when their CRCs are checked
                if self._position >= self._end and not answer.aborted_transactions:  # which began before
                    self._keep(batches)

    def close(self) -> None:
        """No more requests will follow."""
        if self._fetching is not None:
            self._fetching.give_up()
            self._fetching = None

    # ---- what earlier ranges left

    def _kept(self) -> list[Batch]:
        """From the batch with the position on; empty where it has to be fetched."""
        if self._planned is None or self._fetching is not None:
            return []
        leader = self._leader if self._leader is not None else self._planned
        if self._topic_id not in (None, leader.topic_id):
            return []  # the driver had heard of the leader of a topic that was made anew, not of its id
        data = self._cluster.fetched_data.at(self._partition, leader, self._position, self._cluster.now())
        if data is None:
            return []
        return [each for each in whole_batches(data) if each.header.next_offset > self._position]

    def _keep(self, batches: list[Batch]) -> None:
        """Those that hold more than the range. Their bytes are copied: an answer is large, and would be in
        memory as long as one of its batches."""
        rest = [each for each in batches if each.header.next_offset > self._end]
        if rest:
            assert self._leader is not None
            first, last = rest[0], rest[-1]
            data = bytes(first.records[first.position : last.position + last.header.size])
            fetched = FetchedData(
                self._leader, data, first.header.base_offset, last.header.next_offset, self._cluster.now()
            )
            self._cluster.fetched_data.keep(self._partition, fetched)

    # ---- asking

    def _needed_bytes(self, record_bytes: float, at_most: int) -> int:
        """What is left of the range, if its records are of that size; a broker sends all it may."""
        needed = int((self._end - self._position) * record_bytes * SPARE)
        max_bytes = min(max(needed, LEAST_FETCH_BYTES), at_most, self._cluster.settings.fetch_bytes)
        return max(max_bytes, self._largest_batch_bytes)

    def _answer(self) -> FetchedPartition:
        if self._leader is None:
            self._find_leader()
        if self._fetching is None:
            self._send()
        assert self._fetching is not None
        fetching, self._fetching = self._fetching, None
        return fetching.answer()

    def _send(self) -> None:
        assert self._leader is not None
        self._fetching = self._cluster.start_fetch(
            self._partition, self._leader, self._position, self._fetch_bytes
        )

    def _find_leader(self) -> None:
        leader = self._cluster.leader_of(self._partition, refresh=self._failures.count > 0)
        if leader is None:
            raise _Gone("there is no such partition")
        if self._topic_id is not None and leader.topic_id not in (self._topic_id, ZERO_UUID):
            raise _Gone("the topic was re-created")
        self._leader = leader

    def _batches(self, answer: FetchedPartition) -> list[Batch]:
        """Empty where the request has to be sent again, changed."""
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._out_of_range()
        if answer.error in UNKNOWN_TOPIC:
            raise _Gone("there is no such partition")
        if answer.error in RETRIABLE:
            raise Retry(answer.error.name)
        if answer.error != ErrorCode.NONE:
            raise SourceError(answer.error.name, f"{self._partition} cannot be read: {answer.error.name}")
        assert self._leader is not None
        if answer.preferred_read_replica not in (NO_REPLICA, self._leader.node_id):
            self._leader = self._leader._replace(node_id=answer.preferred_read_replica)
            return []
        records = answer.records if answer.records is not None else memoryview(b"")
        try:
            batches = whole_batches(records)
        except CorruptBatchError as error:
            raise CorruptBatchError(f"{self._partition}: {error}") from error
        if batches:
            if batches[-1].header.next_offset <= self._position:
                raise Retry(f"all of the answer lies before offset {self._position}")
            return batches
        if len(records) < BATCH_OVERHEAD:
            raise self._nothing_there()
        size = read_header(records).size
        if size <= self._fetch_bytes:
            raise Retry(f"the batch at offset {self._position} is cut off")
        self._fetch_bytes = self._largest_batch_bytes = size  # it is larger than an answer may be
        return []

    # ---- what is not there

    def _out_of_range(self) -> Exception:
        earliest = self._bound(EARLIEST)
        if self._position < earliest:
            return _Lost(min(earliest, self._end), f"the log begins at {earliest}")
        return self._nothing_there()

    def _nothing_there(self) -> Retry:
        """Why a leader may have nothing although the range is not complete."""
        latest = self._bound(LATEST)
        if latest <= self._position:
            return _Gone(f"the log ends at {latest}")
        return Retry("an open transaction, or a leader that is new")

    def _bound(self, which: int) -> int:
        offsets = self._cluster.offsets({self._partition: which}, read_committed=False)
        if self._partition not in offsets:
            raise _Gone("there is no such partition")
        return offsets[self._partition]

    def _lose(self, until: int, why: str) -> None:
        """Go on behind what cannot be read any more, if the query does not mind."""
        lost = DataLossError(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"Could not read records in offset [{self._position}, {until}) of {self._partition}: {why}.",
        )
        if self._fail_on_data_loss:
            raise lost
        _log.warning("%s", lost)
        self._position = until

    # ---- trying again

    def _try_again(self, reason: Retry) -> None:
        """With the leader looked up again, after a pause. Raises `SourceError` after `timeout_s`; later where
        the rest of the range seemed to be lost, so that a short timeout does not decide whether it is."""
        now = self._cluster.now()
        self._leader = None
        gone_for_s, failing_for_s = self._failures.note(now, gone=isinstance(reason, _Gone))
        patience_s = self._timeout_s + (LOSS_PATIENCE_S if self._failures.seemed_lost else 0)
        if gone_for_s > LOSS_PATIENCE_S:
            self._lose(self._end, str(reason))
        elif failing_for_s > patience_s:
            raise SourceError(
                "TIMEOUT",
                f"Cannot fetch offset {self._position} of {self._partition} in {patience_s:g} s: {reason}",
            ) from reason
        else:
            self._cluster.pause(self._failures.backoff_s)


def _record_bytes(batches: list[Batch]) -> float:
    """On average; offsets without a record count."""
    size = sum(each.header.size for each in batches)
    return size / max(1, batches[-1].header.next_offset - batches[0].header.base_offset)


class _Failures:
    """Since the last success."""

    def __init__(self) -> None:
        self.count = 0
        self.seemed_lost = False
        self._since: float | None = None
        self._gone_since: float | None = None

    @property
    def backoff_s(self) -> float:
        return min(FIRST_BACKOFF_S * 2.0 ** (self.count - 1), MAX_BACKOFF_S)

    def note(self, now: float, *, gone: bool) -> tuple[float, float]:
        """For how many seconds it has all been `_Gone`, and for how many there was any failure."""
        self.count += 1
        self._since = now if self._since is None else self._since
        if not gone:
            self._gone_since = None
            return 0.0, now - self._since
        self.seemed_lost = True
        self._gone_since = now if self._gone_since is None else self._gone_since
        return now - self._gone_since, now - self._since
