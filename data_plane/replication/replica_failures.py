"""What a failure takes offline: a log directory with all its replicas, or one replica alone.

    disk error   storage_failed -> LogDirFailures -> every replica in the directory is offline
    bug          give_up -> that replica is; its log is reported as lost, and the controller elects another

What is offline answers KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from data_plane.log.consistency import InconsistentLogError, disk_failure
from data_plane.log_manager.local_replica import LocalReplica
from data_plane.log_manager.log_dir_failures import LogDirFailures
from data_plane.log_manager.log_dirs import LogDir
from data_plane.log_manager.log_manager import LogManager
from data_plane.replication.directory_assignments import AssignmentsManager, ReplicaAssignment
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import LOST_DIR
from metadata_quorum.foundation.supervision import ExceptionHandlerLoop, bounded, report_fault


class FailureHandler:
    """Handles the failures of one broker's replicas."""

    def __init__(
        self,
        logs: LogManager,
        log_dir_failures: LogDirFailures,
        assignments: AssignmentsManager | None,
        loop: ExceptionHandlerLoop,
    ) -> None:
        self._logs = logs
        self._log_dir_failures = log_dir_failures
        self._assignments = assignments
        self._loop = loop
        log_dir_failures.subscribe(self._log_dir_failed)

    def storage_failed(
        self, replica: LocalReplica, error: OSError | InconsistentLogError, log_path: str = ""
    ) -> None:
        """Take the replica's log directory offline if its disk has failed, or else the replica alone if its
        log is inconsistent. `log_path`: where the log lies that failed, if that may be another directory,
        which the replica has left meanwhile."""
        directory = self._logs.replicas.get(replica)
        if directory is None:
            return
        where = log_path.rpartition("/")[0] or directory.path
        if where != directory.path:
            left = self._logs.dir_at(where)
            if left is not None:
                self._log_dir_failures.report(left, error)
        elif not replica.log.inconsistent or disk_failure(error) is not None:
            self._log_dir_failures.report(directory, error)
        else:
            self.give_up(replica, "the log", error)

    def give_up(self, replica: LocalReplica, work: str, error: Exception) -> None:
        """Take the replica alone offline: a bug in `work` has left its state in doubt."""
        self.fault(f"{work} of {replica.tp}, which goes offline,", error)
        replica.offline = replica.log.inconsistent = True
        if self._assignments is not None:
            self._assignments.assign(ReplicaAssignment(replica.topic_id, replica.tp.partition, LOST_DIR))
        if replica.move is not None:
            replica.move.cancel()
        self._stop(replica)

    def fault(self, work: str, error: Exception) -> None:
        """Report a bug that ends `work` and nothing else."""
        report_fault(self._loop, work, error)

    def _log_dir_failed(self, directory: LogDir, error: OSError) -> None:
        for replica, its_directory in self._logs.replicas.items():
            if its_directory is directory:
                replica.offline = True
                self._stop(replica)

    def _stop(self, replica: LocalReplica) -> None:
        bounded(self._loop, f"the end of {replica.tp}", replica.stop, ErrorCode.KAFKA_STORAGE_ERROR)
