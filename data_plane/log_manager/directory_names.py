"""The names of directories in a log directory.

    topic-0                  a replica's
    topic-0.<uuid>-delete    the partition was deleted; removed after file.delete.delay.ms, or at a start
    topic-0.<uuid>-future    a copy of a replica in another directory, on its way in (replica_moves.py)
    topic-0.<uuid>-stray     on disk, but unknown to the cluster's metadata; set aside for a person to see

A file system takes names of up to 255 bytes. Where what comes behind a long topic name would not fit, the
topic is cut short: nothing needs it any more. (A `-future` that would not fit is refused beforehand.)
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from metadata_quorum.foundation.model import METADATA_TOPIC, TOPIC_NAME, TopicPartition

MAX_NAME_BYTES: Final = 255

DELETED: Final = "delete"
STRAY: Final = "stray"
"""What becomes of a directory that is set aside, at the end of its name."""

_REPLICA: Final = rf"({TOPIC_NAME})-(0|[1-9][0-9]{{0,8}})"
"""A directory that no broker names so is somebody else's: "photos of 2024-12", "t-00"."""
_PARTITION_DIR: Final = re.compile(rf"{_REPLICA}\Z")
_FUTURE: Final = re.compile(rf"{_REPLICA}\.[0-9a-f]{{32}}-future\Z")
_LEAVING: Final = re.compile(rf"{_REPLICA}\.[0-9a-f]{{32}}-({DELETED}|{STRAY})\Z")


def directory_of(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def partition_of(name: str) -> TopicPartition | None:
    """Whose replica lies in the directory."""
    match = _PARTITION_DIR.match(name)
    # The metadata quorum may keep its own log beside the partitions'.
    if match is None or match[1] == METADATA_TOPIC:
        return None
    return TopicPartition(match[1], int(match[2]))


def is_partition(name: str) -> bool:
    return partition_of(name) is not None


def copy_of(name: str) -> TopicPartition | None:
    """Of which replica it is an unfinished copy."""
    match = _FUTURE.match(name)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def is_kept(name: str) -> bool:
    """Whether it is ours, and not about to be removed."""
    left = set_aside_as(name)
    if left is not None:
        return left[1] == STRAY
    return is_partition(name) or copy_of(name) is not None


def set_aside_as(name: str) -> tuple[TopicPartition, str] | None:
    """The partition, of a topic that may be cut short, and the suffix."""
    match = _LEAVING.match(name)
    return None if match is None else (TopicPartition(match[1], int(match[2])), match[3])


def name_aside(tp: TopicPartition, tag: UUID, suffix: str) -> str:
    behind = f"-{tp.partition}.{tag.hex}-{suffix}"
    return f"{tp.topic[: MAX_NAME_BYTES - len(behind)]}{behind}"
