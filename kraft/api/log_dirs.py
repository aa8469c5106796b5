"""DescribeLogDirs: what lies where on this broker's disks. AlterReplicaLogDirs: let it lie elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

from data_plane.log_manager.log_dirs import LogDir
from kraft.api.authz.checks import ALTER_CLUSTER, DESCRIBE_CLUSTER
from kraft.api.context import BrokerContext
from kraft.api.partition_lookup import error_of_absence
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import each_within, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition

PARTITIONS_PER_SLICE: Final = 500
NAMED_PER_SLICE: Final = 2000
BEGUN_WEIGHS: Final = 250
"""Of a slice, what begins to move: its copy gets a directory and files, in one to four milliseconds."""
MAX_FILE_NAME: Final = 255
LONGEST_FUTURE_NAME: Final = "{}-{}." + "0" * 32 + "-future"


async def handle(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    replica_manager, work = broker.replica_manager, broker.node.long_work
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        named = each_within(request.topics, "partitions")
        async for topic, number in in_slices(work, named, NAMED_PER_SLICE):
            if number is not None:
                wanted.add((topic.topic, number))
    kept: dict[LogDir, _Replicas] = {directory: {} for directory in replica_manager.logs.dirs}
    async for partition in in_slices(work, list(replica_manager), PARTITIONS_PER_SLICE):
        if partition.removed or partition.offline:
            continue
        if wanted is None or tuple(partition.tp) in wanted:
            lag = max(partition.high_watermark - partition.log.log_end_offset, 0)
            rows = kept[replica_manager.logs.dir_of(partition)].setdefault(partition.tp.topic, [])
            rows.append(_replica(partition.tp, partition.log.size, lag, is_future=False))
            move = replica_manager.moves.of(partition)
            if move is not None:
                rows = kept[move.directory].setdefault(partition.tp.topic, [])
                rows.append(_replica(partition.tp, move.log.size, move.lag, is_future=True))
    return {"error_code": 0, "results": [_directory(each, found) for each, found in kept.items()]}


_Replicas = dict[str, list[dict[str, Any]]]
"""The rows of a directory, by topic."""
_number: Final = itemgetter("partition_index")


def _replica(tp: TopicPartition, size: int, lag: int, *, is_future: bool) -> dict[str, Any]:
    """A log in a directory; a future one is a copy on its way in."""
    return {
        "partition_index": tp.partition,
        "partition_size": size,
        "offset_lag": lag,
        "is_future_key": is_future,
    }


def _directory(directory: LogDir, kept: _Replicas) -> dict[str, Any]:
    if not directory.online:
        return {"error_code": int(ErrorCode.KAFKA_STORAGE_ERROR), "log_dir": directory.path}
    total, usable = _volume(directory)
    return {
        "error_code": 0,
        "log_dir": directory.path,
        "topics": [{"name": name, "partitions": sorted(kept[name], key=_number)} for name in sorted(kept)],
        "total_bytes": total,
        "usable_bytes": usable,
    }


def _volume(directory: LogDir) -> tuple[int, int]:
    """Total and usable bytes; -1, as Kafka says it, where they are unknown."""
    try:
        return directory.disk.volume(directory.path)
    except OSError:
        return -1, -1


async def handle_alter(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    topics: dict[str, list[dict[str, Any]]] = {}
    work, every = broker.node.long_work, _each_move(request.dirs)

    def weight(move: tuple[str, TopicPartition | None]) -> int:
        return BEGUN_WEIGHS if move[1] is not None and move[1] in broker.replica_manager else 1

    async for path, tp in in_slices(work, every, PARTITIONS_PER_SLICE, weight):
        if tp is not None:
            error = _move(broker, tp, path)
            row = {"partition_index": tp.partition, "error_code": int(error)}
            topics.setdefault(tp.topic, []).append(row)
    return {"results": [{"topic_name": name, "partitions": moved} for name, moved in topics.items()]}


def _each_move(dirs: Iterable[Message]) -> Iterator[tuple[str, TopicPartition | None]]:
    """A directory with each partition that is to move there; directories and topics with None."""
    for directory in dirs:
        yield directory.path, None
        for topic, number in each_within(directory.topics, "partitions"):
            yield directory.path, None if number is None else TopicPartition(topic.name, number)


def _move(broker: BrokerContext, tp: TopicPartition, path: str) -> ErrorCode:
    if len(LONGEST_FUTURE_NAME.format(tp.topic, tp.partition)) > MAX_FILE_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    try:
        broker.replica_manager.move(tp, path)
    except BrokerError as e:
        code = error_of_absence(broker.node, e.code, tp.topic, ZERO_UUID, tp.partition)
        # Not here yet, though the directory is noted: Kafka's name for that.
        return ErrorCode.REPLICA_NOT_AVAILABLE if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else code
    return ErrorCode.NONE


def alter_error(request: Message, code: ErrorCode, message: str) -> Response:
    topics = [topic for directory in request.dirs for topic in directory.topics]
    return {
        "results": [
            {
                "topic_name": topic.name,
                "partitions": [
                    {"partition_index": number, "error_code": int(code)} for number in topic.partitions
                ],
            }
            for topic in topics
        ]
    }


ROWS: Final = (
    ApiRow(
        ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), (ALTER_CLUSTER,), broker=handle_alter, on_error=alter_error
    ),
    ApiRow(ApiKey.DESCRIBE_LOG_DIRS, (1, 4), (DESCRIBE_CLUSTER,), broker=handle),
)
