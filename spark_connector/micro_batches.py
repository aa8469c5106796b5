"""On the driver: the transactions of a micro-batch's tasks are committed, all of them and once.

    fence other open transactions -> compare with the last mark -> add marks -> the first commit -> the others

Each transaction commits a mark: the number of the next micro-batch, as an offset of a consumer group. The
mark of the first transaction is the decision. Its group is the query's, and its metadata has the number of
tasks and of rows, with a digest of them. With it the micro-batch counts as committed. If the driver fails
before the other commits, the next run of the query completes them: it finds the same micro-batch marked and
the same rows written, and commits those tasks that have no mark of their own.

Only the micro-batch that was marked last may run again. If an earlier one does, the checkpoint was rolled
back; if its rows differ, they depend on more than their offsets. Either would write rows twice, or leave some
out, so it ends the query.

Transactions that are open under the query's ids and are not of this micro-batch's tasks were left by failed
attempts and runs, and block consumers of committed records; a producer that still writes there must not
commit. So they are fenced before the marks are read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from metadata_quorum.foundation.errors import ErrorCode
from spark_connector.connections import cluster_client
from spark_connector.coordinators import (
    CommittedMark,
    OpenTransaction,
    PendingMark,
    add_marks,
    committed_marks,
    end_transactions,
    ended_before,
    fence,
    open_transactions,
)
from spark_connector.errors import ConnectorError, SinkError
from spark_connector.transactions import Rows

_DIGEST_CHARACTERS: Final = 16
_NO_MARK: Final = CommittedMark(0, "")

LOOKS_S: Final = (0.0, 1.0, 1.0, 2.0)
"""Pauses before each look for what is open after a job that failed. Spark calls its other tasks off, and ends
their workers 2 s later (spark.python.task.killTimeout): what they begin until then would stay open."""

_log = logging.getLogger(__name__)


class TaskRows(NamedTuple):
    """What a task has written."""

    task: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One of a query, whose tasks have all ended well."""

    group: str
    """The group of the query's marks; the groups of its tasks have the task's number appended."""
    id_prefix: str
    """With which the transactional ids of all its tasks begin."""
    number: int
    written: Sequence[TaskRows]
    mark_topic: str | None = None
    """At which marks are committed; else at the one that is written to."""

    @property
    def manifest(self) -> str:
        """What makes another run of it the same one."""
        digest = sha256(
            "".join(f"{each.task}:{each.rows.number}:{each.rows.digest}\n" for each in self.written).encode()
        )
        rows = sum(each.rows.number for each in self.written)
        return f"tasks={len(self.written)} rows={rows} digest={digest.hexdigest()[:_DIGEST_CHARACTERS]}"

    def prepare(self, client: Mapping[str, str]) -> list[OpenTransaction]:
        """Those that are to be committed, marked, the deciding one first. Raises `ConnectorError`."""
        cluster = cluster_client(client)
        marked = self.pending_marks()
        fence_others(client, self.id_prefix, [each.transaction for each in marked])
        last = committed_marks(cluster, [self.group]).get(self.group)
        if last is not None and last.offset > self.number:
            self.check(last)
            marks = committed_marks(cluster, [each.group for each in marked])
            done = [each for each in marked if marks.get(each.group, _NO_MARK).offset > self.number]
            end_transactions(cluster, [each.transaction for each in done], committed=False)
            marked = [each for each in marked if each not in done]
        for each, code in zip(marked, add_marks(cluster, marked), strict=True):
            if code != ErrorCode.NONE:
                raise _unmarked(each, code)
        return [each.transaction for each in marked]

    def pending_marks(self) -> list[PendingMark]:
        """Every transaction, with the mark that it takes along."""
        marked: list[PendingMark] = []
        for task, rows in self.written:
            if rows.transaction is not None:
                group, metadata = (f"{self.group}-{task}", "") if marked else (self.group, self.manifest)
                mark = CommittedMark(self.number + 1, metadata)
                marked.append(PendingMark(rows.transaction, group, self._mark_topic(rows), mark))
        return marked

    def _mark_topic(self, rows: Rows) -> str:
        topic = self.mark_topic if self.mark_topic is not None else rows.topic
        assert topic is not None, "a transaction has rows"
        return topic

    def check(self, last: CommittedMark) -> None:
        """Against the mark of the micro-batch that was committed last, this one or a later one.
        Raises SinkError."""
        if last.offset > self.number + 1:
            raise SinkError(
                "KAFKA_TRANSACTION_ROLLED_BACK",
                f"micro-batch {self.number} is written again, though micro-batch {last.offset - 1} of this"
                " query has been committed: its checkpoint is an old one, or another query has a copy of it."
                " Take the latest checkpoint; or set 'transactionalIdPrefix' to another one, and all rows"
                " from here on are written again",
            )
        if last.metadata != self.manifest:
            raise SinkError(
                "KAFKA_TRANSACTION_OTHER_ROWS",
                f"micro-batch {self.number} has been committed, in part or whole, with {last.metadata}, and"
                f" has {self.manifest} now: its rows, or their tasks, depend on more than its offsets, or"
                " its checkpoint was rolled back. With 'transactional' set to 'false', or with another"
                " 'transactionalIdPrefix', it can be written, and some rows will be there twice",
            )


def commit_all(client: Mapping[str, str], transactions: Sequence[OpenTransaction]) -> None:
    """The first one alone, for it decides; also where some were committed before. Raises `ConnectorError`."""
    cluster = cluster_client(client)
    for some in (transactions[:1], transactions[1:]):
        for each, code in zip(some, end_transactions(cluster, some, committed=True), strict=True):
            if code != ErrorCode.NONE:
                raise _lost(each, code)


def commit_job(client: Mapping[str, str], id_prefix: str, mine: Sequence[OpenTransaction]) -> None:
    """Those of a batch query's tasks: all, or none where one of them has ended, as it does by its timeout
    when the job takes longer. Raises `ConnectorError`."""
    fence_others(client, id_prefix, mine)
    if ended := ended_before(cluster_client(client), mine):
        raise SinkError(
            "KAFKA_TRANSACTION_LOST",
            f"'{ended[0].transactional_id}' cannot be committed: it was open for longer than"
            " 'kafka.transaction.timeout.ms', which must be longer than the job takes. None of the job's rows"
            " is there",
        )
    commit_all(client, mine)


def fence_others(client: Mapping[str, str], id_prefix: str, mine: Collection[OpenTransaction]) -> None:
    """What failed attempts have left open under ids with that prefix. Raises `ConnectorError`."""
    cluster = cluster_client(client)
    fence(cluster, open_transactions(cluster, id_prefix) - {each.transactional_id for each in mine})


def abort_all(client: Mapping[str, str], id_prefix: str, messages: Sequence[object | None]) -> None:
    """Abort all that is open under ids with that prefix; what was committed stays. `messages`: of the tasks;
    those without one may yet begin a transaction. Where no broker answers, all end by their timeout, which
    is not waited for."""
    try:
        for pause_s in LOOKS_S if None in messages else LOOKS_S[:1]:
            cluster_client(client).pause(pause_s)
            fence_others(client, id_prefix, ())
    except ConnectorError as problem:
        _log.warning("what is open under '%s...' is left so: %s", id_prefix, problem)


def abort_query(client: Mapping[str, str], prefix: str, query: str) -> None:
    """Abort all that a query has left open, wherever its checkpoint is; where no broker answers, as
    `abort_all`."""
    cluster = cluster_client(client)
    try:
        fence(cluster, {each for each in open_transactions(cluster, f"{prefix}-") if f"-{query}-" in each})
    except ConnectorError as problem:
        _log.warning("what query %s has open is left so: %s", query, problem)


def _lost(transaction: OpenTransaction, code: ErrorCode) -> SinkError:
    return SinkError(
        "KAFKA_TRANSACTION_LOST",
        f"'{transaction.transactional_id}' cannot be committed: {code.name}. It was open for longer than"
        " 'kafka.transaction.timeout.ms', or another query has the same name. The micro-batch is written"
        " again when the query is started again",
    )


def _unmarked(marked: PendingMark, code: ErrorCode) -> SinkError:
    match code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            problem = (
                f"group '{marked.group}' cannot remember the micro-batch at topic '{marked.topic}', which"
                " takes the right to read that topic. Set 'transactionalMarkTopic' to one that may be read:"
                " it is only named, nothing is written to it"
            )
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            problem = (
                f"the micro-batch is remembered by group '{marked.group}', which takes the right to read it"
            )
        case _:
            return _lost(marked.transaction, code)
    return SinkError(code.name, problem)
