"""A log directory whose disk fails goes offline as a whole (KIP-112), until the broker is restarted.

Whoever meets an error of the disk reports it here; the listeners take the replicas in the directory offline,
drop the copies on their way there, and let the controller know. Kafka: LogDirFailureChannel.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from data_plane.log.consistency import disk_failure
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.supervision import ExceptionHandlerLoop, bounded, report_fault

logger = logging.getLogger(__name__)

LogDirFailureListener = Callable[[LogDir, OSError], None]


class LogDirFailures:
    """The failures of one broker's log directories."""

    def __init__(self, loop: ExceptionHandlerLoop) -> None:
        self._loop = loop
        self._listeners: list[LogDirFailureListener] = []

    def subscribe(self, listener: LogDirFailureListener) -> None:
        """Listeners are called in the order in which they subscribed, once for each directory."""
        self._listeners.append(listener)

    def report(self, directory: LogDir, error: Exception) -> bool:
        """Whether the directory is offline after `error`. Where the error is not the disk's, only the work
        that met it has failed."""
        failure = disk_failure(error)
        if failure is not None:
            self.fail(directory, failure)
            return True
        report_fault(self._loop, f"work in {directory.path}", error)
        return False

    def fail(self, directory: LogDir, error: OSError) -> None:
        """Take the directory offline; nothing happens where it is."""
        if not directory.online:
            return
        directory.online = False
        with contextlib.suppress(OSError):
            directory.mark_lost()
        logger.error("Log directory %s goes offline: %s", directory.path, error)
        for listener in self._listeners:  # a bug in one keeps it from no other: the controller is told last
            bounded(self._loop, f"the end of log directory {directory.path}", listener, directory, error)
