"""The logs of many new partitions, created in the executor before metadata is applied.

metadata_publisher -> DeltaApplier.logs_to_create -> CreatedLogs.run (executor) -> add_created -> apply
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.recovery import LogCorruptError
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import TopicPartition


class NewLog(NamedTuple):
    """The log of a new partition, and the directory chosen for it."""

    tp: TopicPartition
    topic_id: UUID
    config: LogConfig
    directory: LogDir


class CreatedLogs:
    """Work for the executor. A log that cannot be created is left out: applying the metadata tries it again
    and decides what the error means."""

    def __init__(self, new: Sequence[NewLog], now_ms: int) -> None:
        self._new = new
        self._now_ms = now_ms
        self.logs: list[tuple[NewLog, UnifiedLog]] = []

    def run(self, may_block: MayBlock) -> None:
        for new in self._new:
            with contextlib.suppress(OSError, BrokerError, LogCorruptError):
                log = new.directory.open_log(new.tp, new.topic_id, new.config, self._now_ms, may_block)
                self.logs.append((new, log))
