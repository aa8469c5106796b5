"""DescribeLogDirs: what lies where on this broker's disks."""

from __future__ import annotations

import shutil
from typing import Any, Final

from data_plane.log_dirs import LogDir
from data_plane.partition import Partition
from kraft.api.row import BROKER, ApiRow, Response
from kraft.context import NodeContext, RequestContext
from kraft.wire.bridge import Message
from metadata_quorum.errors import ErrorCode


def handle(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    partitions = node.partitions
    if partitions is None:
        return {"error_code": int(ErrorCode.BROKER_NOT_AVAILABLE)}
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    kept: dict[LogDir, list[Partition]] = {directory: [] for directory in partitions.log_dirs}
    for partition in partitions:
        if wanted is None or tuple(partition.tp) in wanted:
            kept[partitions.log_dir_of(partition)].append(partition)
    return {"error_code": 0, "results": [_directory(each, found) for each, found in kept.items()]}


def _directory(directory: LogDir, partitions: list[Partition]) -> dict[str, Any]:
    if not directory.online:
        return {"error_code": int(ErrorCode.KAFKA_STORAGE_ERROR), "log_dir": directory.path}
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in sorted(partitions, key=lambda each: each.tp):
        topics.setdefault(partition.tp.topic, []).append(
            {
                "partition_index": partition.tp.partition,
                "partition_size": partition.log.size,
                "offset_lag": max(partition.high_watermark - partition.log.log_end_offset, 0),
                "is_future_key": False,
            }
        )
    total, usable = _volume(directory.path)
    return {
        "error_code": 0,
        "log_dir": directory.path,
        "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
        "total_bytes": total,
        "usable_bytes": usable,
    }


def _volume(path: str) -> tuple[int, int]:
    """Size and room of the volume; -1 where that cannot be told (a disk that is only simulated)."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return -1, -1
    return usage.total, usage.free


ROWS: Final = (ApiRow(35, "DescribeLogDirs", 1, 4, BROKER, handle),)
