"""What the transactional sink asks the coordinators of groups and of transactions.

    end_transaction(cluster, transaction, committed=True)  -> the coordinator's answer
    committed_offsets(cluster, group)                      -> what the group has committed, by partition

librdkafka ends a transaction only in the process that began it; the driver ends those of its tasks. So these
are requests of our own, over the connections that the source uses, too. A coordinator that has moved, or is
about to, is looked up again until time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from kraft.net.client import Address
from kraft.wire.bridge import Fields, MalformedMessage, Message
from metadata_quorum.errors import ErrorCode
from spark_connector.connections import RETRIABLE, Cluster, Retry, common_version, problem_of
from spark_connector.errors import SinkError
from spark_connector.offsets import TopicPartition

OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
END_TXN: Final = 26

_OFFSET_FETCH_VERSIONS: Final = (7, 7)  # from 7 on it waits for open transactions, from 8 on groups are many
_FIND_COORDINATOR_VERSIONS: Final = (1, 3)  # from 1 on with the kind, from 4 on keys are many
_END_TXN_VERSIONS: Final = (1, 3)  # from 5 on the epoch is another after each; librdkafka goes to 1

_MOVED_OR_BUSY: Final = RETRIABLE | frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class Kind(IntEnum):
    """Of a coordinator."""

    GROUP = 0
    TRANSACTION = 1


class Transaction(NamedTuple):
    """One that is open, and whose it is."""

    transactional_id: str
    producer_id: int
    epoch: int


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str


def end_transaction(source: Cluster, transaction: Transaction, *, committed: bool) -> ErrorCode:
    """NONE also where it has ended so before. Raises `SinkError` where nobody answers."""
    fields = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "committed": committed,
    }
    key = transaction.transactional_id
    return _ask(source, Kind.TRANSACTION, key, END_TXN, _END_TXN_VERSIONS, fields, _error_of)[1]


def committed_offsets(source: Cluster, group: str) -> dict[TopicPartition, CommittedOffset]:
    """When no transaction is open that may change them. Raises `SinkError`."""
    fields = {"group_id": group, "topics": None, "require_stable": True}
    answer, code = _ask(
        source, Kind.GROUP, group, OFFSET_FETCH, _OFFSET_FETCH_VERSIONS, fields, _error_of_offsets
    )
    if code != ErrorCode.NONE:
        raise SinkError(code.name, f"what group '{group}' has committed cannot be read: {code.name}")
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(
            each.committed_offset, (each.metadata or "").rstrip("\0")  # librdkafka counts C's end in
        )
        for topic in answer.topics
        for each in topic.partitions
    }  # fmt: skip


def _error_of(answer: Message) -> ErrorCode:
    return ErrorCode(answer.error_code)


def _error_of_offsets(answer: Message) -> ErrorCode:
    """One partition's that is not settled yet is everybody's."""
    codes = [answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)]
    return next((ErrorCode(code) for code in codes if code), ErrorCode.NONE)


def _ask(
    source: Cluster,
    kind: Kind,
    key: str,
    api_key: int,
    versions: tuple[int, int],
    fields: Fields,
    error_of: Callable[[Message], ErrorCode],
) -> tuple[Message, ErrorCode]:
    """The coordinator's answer and what it says that went wrong, once that is not for the moment only."""
    timeout_s = source.settings.request_timeout_s

    async def attempt() -> tuple[Message, ErrorCode]:
        try:
            client = await source.connected(await _coordinator(source, kind, key))
            version = common_version(client, api_key, versions)
            answer = await client.request(api_key, version, fields, timeout_s=timeout_s)
        except (OSError, MalformedMessage) as error:
            raise Retry(f"the coordinator of '{key}': {problem_of(error)}") from error
        if (code := error_of(answer)) in _MOVED_OR_BUSY:
            raise Retry(f"the coordinator of '{key}': {code.name}")
        return answer, code

    return source.run(source.within(source.settings.api_timeout_s, attempt))


async def _coordinator(source: Cluster, kind: Kind, key: str) -> Address:
    fields = {"key": key, "key_type": int(kind)}
    answer = await source.ask_any_broker(FIND_COORDINATOR, _FIND_COORDINATOR_VERSIONS, fields)
    if (code := ErrorCode(answer.error_code)) in _MOVED_OR_BUSY:
        raise Retry(f"the coordinator of '{key}': {code.name}")
    if code != ErrorCode.NONE:
        raise SinkError(code.name, f"'{key}' has no coordinator: {code.name}")
    return Address(answer.host, answer.port)
