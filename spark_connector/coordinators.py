"""Requests of the transactional sink's driver to the coordinators of groups and of transactions.

    open_transactions(cluster, prefix)              -> transactional ids of those that are still open
    ended_before(cluster, transactions)             -> those of them that are not open any more
    fence(cluster, transactional_ids)               -> aborts them, and fences their producers
    committed_marks(cluster, groups)                -> what each group has committed last
    add_marks(cluster, marked)                      -> offsets of groups that are committed with transactions
    end_transactions(cluster, transactions, ...)    -> the coordinators' error codes

librdkafka ends a transaction only in the process that began it; the driver ends those of its tasks. So these
are requests of our own, over the connections that the source uses, too; those of one call all at once. A
coordinator that has moved, or is about to, is looked up again until the timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kraft.net.client import Address
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, MalformedMessage, Message
from kraft.wire.coordinator_type import CoordinatorType
from kraft.wire.malformed import only
from metadata_quorum.foundation.errors import ErrorCode
from spark_connector.connections import ClusterClient, common_version, problem_of
from spark_connector.errors import Retry, SinkError
from spark_connector.leaders import RETRIABLE

_OFFSET_FETCH_VERSIONS: Final = (7, 7)  # from 7 on it waits for open transactions, from 8 on groups are many
_FIND_COORDINATOR_VERSIONS: Final = (1, 3)  # from 1 on with the kind, from 4 on keys are many
_INIT_PRODUCER_ID_VERSIONS: Final = (1, 4)
_ADD_OFFSETS_VERSIONS: Final = (1, 3)
_END_TXN_VERSIONS: Final = (1, 3)  # from 5 on each raises the epoch; librdkafka uses up to 1
_TXN_OFFSET_COMMIT_VERSIONS: Final = (2, 3)
_LIST_TRANSACTIONS_VERSIONS: Final = (0, 1)  # Kafka 3.0
_DESCRIBE_TRANSACTIONS_VERSIONS: Final = (0, 0)  # Kafka 3.0

_OPEN: Final = "Ongoing"
_FENCED_TIMEOUT_MS: Final = 1
"""The timeout of a producer that begins no transaction: no `transaction.max.timeout.ms` forbids it, and the
next producer of that name sets its own."""

_MOVED_OR_BUSY: Final = RETRIABLE | frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

Value = TypeVar("Value")


class OpenTransaction(NamedTuple):
    """One that is open, and its producer."""

    transactional_id: str
    producer_id: int
    epoch: int


class CommittedMark(NamedTuple):
    """What a group has committed."""

    offset: int
    metadata: str


class PendingMark(NamedTuple):
    """A mark that is committed when its transaction is."""

    transaction: OpenTransaction
    group: str
    topic: str
    mark: CommittedMark


def open_transactions(cluster: ClusterClient, prefix: str) -> set[str]:
    """Their transactional ids, of those that begin with `prefix`. Raises `ConnectorError` where a broker does
    not answer."""
    timeout_s = cluster.settings.request_timeout_s
    fields = {"state_filters": [_OPEN], "producer_id_filters": []}

    async def ask(address: Address) -> Message:
        try:
            client = await cluster.connected(address)
            version = common_version(client, ApiKey.LIST_TRANSACTIONS, _LIST_TRANSACTIONS_VERSIONS)
            answer = await client.request(ApiKey.LIST_TRANSACTIONS, version, fields, timeout_s=timeout_s)
        except (OSError, MalformedMessage) as error:
            raise Retry(f"broker {address}: {problem_of(error)}") from error
        if answer.error_code:
            raise Retry(f"broker {address}: {ErrorCode(answer.error_code).name}")
        return answer

    async def attempt() -> set[str]:
        answers = await _all(ask(address) for address in await cluster.brokers())
        found = (each.transactional_id for answer in answers for each in answer.transaction_states)
        return {each for each in found if each.startswith(prefix)}

    return cluster.run(cluster.within(cluster.settings.api_timeout_s, attempt))


def ended_before(cluster: ClusterClient, transactions: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    """By their timeout, or by another producer of that id. Raises `ConnectorError`."""

    async def ask(each: OpenTransaction) -> list[OpenTransaction]:
        key = each.transactional_id
        answer, code = await _ask(
            cluster,
            CoordinatorType.TRANSACTION,
            key,
            ApiKey.DESCRIBE_TRANSACTIONS,
            _DESCRIBE_TRANSACTIONS_VERSIONS,
            {"transactional_ids": [key]},
            _error_of_transaction,
        )
        if code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            raise SinkError(code.name, f"whether '{key}' is open cannot be seen: {code.name}")
        (now,) = answer.transaction_states
        is_open = now.transaction_state == _OPEN
        return [] if is_open and (now.producer_id, now.producer_epoch) == each[1:] else [each]

    return [each for ended in cluster.run(_all(ask(each) for each in transactions)) for each in ended]


def fence(cluster: ClusterClient, transactional_ids: Collection[str]) -> None:
    """Abort the transactions that are open under those ids, and fence their producers. Raises
    `ConnectorError`."""

    async def ask(transactional_id: str) -> None:
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": _FENCED_TIMEOUT_MS}
        _, code = await _ask(
            cluster,
            CoordinatorType.TRANSACTION,
            transactional_id,
            ApiKey.INIT_PRODUCER_ID,
            _INIT_PRODUCER_ID_VERSIONS,
            fields,
        )
        if code != ErrorCode.NONE:
            raise SinkError(
                code.name, f"'{transactional_id}' was left open, and cannot be aborted: {code.name}"
            )

    cluster.run(_all(ask(each) for each in transactional_ids))


def end_transactions(
    cluster: ClusterClient, transactions: Iterable[OpenTransaction], *, committed: bool
) -> list[ErrorCode]:
    """NONE also where it has ended the same way before. Raises `ConnectorError` where no broker answers."""

    async def ask(each: OpenTransaction) -> ErrorCode:
        fields = {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "producer_epoch": each.epoch,
            "committed": committed,
        }
        key = each.transactional_id
        return (
            await _ask(cluster, CoordinatorType.TRANSACTION, key, ApiKey.END_TXN, _END_TXN_VERSIONS, fields)
        )[1]

    return cluster.run(_all(ask(each) for each in transactions))


def committed_marks(cluster: ClusterClient, groups: Sequence[str]) -> dict[str, CommittedMark]:
    """When no transaction is open that may change them; a group without any is left out. A mark may be at any
    topic: the latest one counts. Raises `ConnectorError`."""

    async def ask(group: str) -> list[CommittedMark]:
        fields = {"group_id": group, "topics": None, "require_stable": True}
        answer, code = await _ask(
            cluster,
            CoordinatorType.GROUP,
            group,
            ApiKey.OFFSET_FETCH,
            _OFFSET_FETCH_VERSIONS,
            fields,
            _error_of_offsets,
        )
        if code != ErrorCode.NONE:
            raise SinkError(code.name, f"what group '{group}' has committed cannot be read: {code.name}")
        return [
            CommittedMark(each.committed_offset, each.metadata or "")
            for topic in answer.topics
            for each in topic.partitions
        ]

    answers = cluster.run(_all(ask(group) for group in groups))
    return {group: max(marks) for group, marks in zip(groups, answers, strict=True) if marks}


def add_marks(cluster: ClusterClient, marked: Iterable[PendingMark]) -> list[ErrorCode]:
    """Partition 0 is in every topic, and brokers check no more. Raises `ConnectorError` where no
    broker answers."""

    async def ask(each: PendingMark) -> ErrorCode:
        producer = {
            "transactional_id": each.transaction.transactional_id,
            "producer_id": each.transaction.producer_id,
            "producer_epoch": each.transaction.epoch,
            "group_id": each.group,
        }
        _, code = await _ask(
            cluster,
            CoordinatorType.TRANSACTION,
            each.transaction.transactional_id,
            ApiKey.ADD_OFFSETS_TO_TXN,
            _ADD_OFFSETS_VERSIONS,
            producer,
        )
        if code != ErrorCode.NONE:
            return code
        partition = {
            "partition_index": 0,
            "committed_offset": each.mark.offset,
            "committed_metadata": each.mark.metadata,
        }
        fields = {**producer, "topics": [{"name": each.topic, "partitions": [partition]}]}
        versions = _TXN_OFFSET_COMMIT_VERSIONS
        return (
            await _ask(
                cluster,
                CoordinatorType.GROUP,
                each.group,
                ApiKey.TXN_OFFSET_COMMIT,
                versions,
                fields,
                _error_of_partitions,
            )
        )[1]

    return cluster.run(_all(ask(each) for each in marked))


def _error_of(answer: Message) -> ErrorCode:
    return ErrorCode(answer.error_code)


def _error_of_offsets(answer: Message) -> ErrorCode:
    """That of the group, or of the first partition that has one."""
    return ErrorCode(answer.error_code) if answer.error_code else _error_of_partitions(answer)


def _error_of_partitions(answer: Message) -> ErrorCode:
    codes = (ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions)
    return next(filter(None, codes), ErrorCode.NONE)


def _error_of_transaction(answer: Message) -> ErrorCode:
    """Raises `MalformedMessage`."""
    return ErrorCode(only(answer.transaction_states).error_code)


async def _all(work: Iterable[Coroutine[Any, Any, Value]]) -> list[Value]:
    """All of it, also where some fails; then the first failure is raised."""
    results = await asyncio.gather(*work, return_exceptions=True)
    done: list[Value] = []
    for each in results:
        if isinstance(each, BaseException):
            raise each
        done.append(each)
    return done


async def _ask(
    cluster: ClusterClient,
    kind: CoordinatorType,
    key: str,
    api_key: ApiKey,
    versions: tuple[int, int],
    fields: Fields,
    error_of: Callable[[Message], ErrorCode] = _error_of,
) -> tuple[Message, ErrorCode]:
    """The coordinator's response and its error code, once that is not a retriable one."""
    timeout_s = cluster.settings.request_timeout_s

    async def attempt() -> tuple[Message, ErrorCode]:
        try:
            client = await cluster.connected(await _coordinator(cluster, kind, key))
            version = common_version(client, api_key, versions)
            answer = await client.request(api_key, version, fields, timeout_s=timeout_s)
            code = error_of(answer)
        except (OSError, MalformedMessage) as error:
            raise Retry(f"the coordinator of '{key}': {problem_of(error)}") from error
        if code in _MOVED_OR_BUSY:
            raise Retry(f"the coordinator of '{key}': {code.name}")
        return answer, code

    return await cluster.within(cluster.settings.api_timeout_s, attempt)


async def _coordinator(cluster: ClusterClient, kind: CoordinatorType, key: str) -> Address:
    fields = {"key": key, "key_type": int(kind)}
    answer = await cluster.ask_any_broker(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSIONS, fields)
    if (code := ErrorCode(answer.error_code)) in _MOVED_OR_BUSY:
        raise Retry(f"the coordinator of '{key}': {code.name}")
    if code != ErrorCode.NONE:
        raise SinkError(code.name, f"'{key}' has no coordinator: {code.name}")
    return Address(answer.host, answer.port)
