"""The log directories of a broker, and what lies in them when it starts.

A directory holds one subdirectory per replica (directory_names.py), the four offset checkpoints and
`meta.properties`.

One whose disk fails is offline as a whole until the node is restarted (log_dir_failures.py). Then its
partitions' directories are made anew (renewal.py).
Used by log_manager.py.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from data_plane.log import checkpoints
from data_plane.log.checkpoints import BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log.files import PARTITION_METADATA
from data_plane.log.load import load
from data_plane.log.log import UnifiedLog
from data_plane.log.recovery import LogCorruptError
from data_plane.log_manager import renewal
from data_plane.log_manager.deleted_logs import DeletedLogs
from data_plane.log_manager.directory_names import (
    DELETED,
    MAX_NAME_BYTES,
    STRAY,
    copy_of,
    directory_of,
    is_kept,
    is_partition,
    name_aside,
    partition_of,
)
from metadata_quorum.foundation.batch import CorruptBatchError
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, directories_in, is_of_disk, make_dirs_durably
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition
from metadata_quorum.foundation.supervision import ends_node

logger = logging.getLogger(__name__)

_UPDATED: Final = frozenset(
    {checkpoints.REPLICATION_OFFSETS, checkpoints.LOG_START_OFFSETS, checkpoints.CLEANED_TO}
)
"""The checkpoints that are updated for single replicas whose offsets have changed."""

SYNCED_ONE_BY_ONE: Final = 100
"""After a death of the process, up to this many logs are synced one by one; if there are more, the whole file
system is synced at once."""


class LogDir:
    """One of `log.dirs`."""

    def __init__(
        self, disk: Disk, path: str, directory_id: UUID | None = ZERO_UUID, boot_id: str = ""
    ) -> None:
        """`directory_id`: None where it cannot be read: then the directory is offline from the beginning.
        `boot_id` names the machine's present boot; empty where that is not known."""
        self.disk = disk
        self.path = path
        self.directory_id = directory_id or ZERO_UUID
        self.is_identified = directory_id is not None
        self._boot_id = boot_id
        self.online = self.is_identified
        self.loaded = False
        """What lies here has been opened: before, the checkpoints know more than this process."""
        self.clean = False  # the last shutdown was a clean one
        # The machine, since a process last ran here, which did not stop cleanly; or its disk had failed.
        self._machine_restarted = False
        self._disk_failed = False  # in the last run, or since
        self.renewal_due = False  # since it has
        self._unrecovered = False  # a log that may lack pages could not be opened
        self.last_run = checkpoints.UNKNOWN_RUN  # its epoch is -1 if something here is lost; see load
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaned_to: dict[TopicPartition, int] = {}
        self.unfinished: dict[TopicPartition, str] = {}
        """Unfinished copies of the last run, and their paths: they begin again."""
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self.unopened: dict[TopicPartition, UUID | None] = {}
        """Logs that could not be opened: what the checkpoints say of them stays. Their topics, if those can
        be read."""
        self._deleted = DeletedLogs(disk, path)
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        self._set_aside: dict[str, None] = {}
        """Paths of what was, since the last `sync`: a loss of power may bring the old names back."""

    def partition_path(self, tp: TopicPartition) -> str:
        return f"{self.path}/{directory_of(tp)}"

    # --- start --------------------------------------------------------------------------------

    def load(
        self, defaults: LogConfig, topic_configs: Mapping[str, LogConfig], now_ms: int, may_block: MayBlock
    ) -> tuple[dict[TopicPartition, tuple[UnifiedLog, UUID]], dict[TopicPartition, str]]:
        """Open every log here, and recover them if the last shutdown was unclean. Logs that cannot be opened
        (corrupt in the middle, say, or of an unknown topic) are returned with the reason; they do not affect
        the others. Raises OSError of the disk.

        Nothing of the last run is lost after a clean shutdown, nor if only the process died, in whatever way:
        what it had written stays in the page cache until the machine goes down. The boot id tells one from
        the other. The logs are checked all the same: the last write may have been cut short."""
        disk = self.disk
        make_dirs_durably(disk, self.path, may_block)
        self._read_state(may_block)
        # Before `_open_all` forgets the entries of unidentified logs. Those may belong to an older log of the
        # name; in either case nobody can say that nothing is lost.
        known_ends = {tp: self._known_end(tp) for tp in self._known()}
        logs, corrupt = self._open_all(defaults, topic_configs, now_ms, may_block)
        gone = self._known() - logs.keys() - corrupt.keys()
        for tp in gone:  # a new one of that name begins at 0
            self.forget(tp)
        ends = {tp: log.found_end for tp, (log, _) in logs.items()}
        ends |= {tp: 0 for tp in gone if tp not in self._deleted}  # else somebody has removed it
        is_lacking = any(_lacks(tp, end, known_ends.get(tp, 0)) for tp, end in ends.items())
        knew_more = is_lacking and self.last_run.broker_epoch >= 0
        if knew_more:
            self.last_run = checkpoints.UNKNOWN_RUN
        if self.clean or knew_more or not checkpoints.has_running(disk, self.path):
            # Neither the clean shutdown nor the checkpoints will say it again, should this process die. And
            # the name is durable before anything is written here: a loss of power that took it hid itself.
            self.mark_running(self.last_run)
            disk.sync_dir(self.path, may_block)
        if disk.exists(f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"):
            checkpoints.remove_clean_shutdown(disk, self.path, may_block)
        if not self.clean or known_ends.keys() - self._known():
            self._correct_checkpoints(logs, may_block)
        self._deleted.remove(may_block)
        self._unrecovered = self._machine_restarted and bool(self.unopened)
        if self._disk_failed:
            with contextlib.suppress(OSError):  # else it is made anew once more
                self.mark_running(self.last_run)
        self.clean = self._machine_restarted = self._disk_failed = False  # logs opened from now on are new
        self.loaded = True
        return logs, corrupt

    def _read_state(self, may_block: MayBlock) -> None:
        """How the last run ended, and the checkpoints that it left."""
        disk = self.disk
        ended = checkpoints.read_clean_shutdown(disk, self.path, may_block)
        self.clean = ended is not None
        self._machine_restarted = not self.clean and checkpoints.machine_restarted(
            disk, self.path, self._boot_id, may_block
        )
        # Also where a start has failed that found a clean shutdown, and what was due before is forgotten.
        disk_failed = bool(self._boot_id) and checkpoints.disk_failed(disk, self.path, may_block)
        self._disk_failed = self._machine_restarted and disk_failed
        self.renewal_due = disk_failed or checkpoints.renewal_due(disk, self.path, self._boot_id, may_block)
        self.last_run = self._noted_run(ended, may_block)
        self.high_watermarks = self._offsets(checkpoints.REPLICATION_OFFSETS, may_block)
        self._recovery_points = self._offsets(checkpoints.RECOVERY_POINTS, may_block)
        self._log_starts = self._offsets(checkpoints.LOG_START_OFFSETS, may_block)
        self.cleaned_to = self._offsets(checkpoints.CLEANED_TO, may_block)

    def look_up_last_run(self, may_block: MayBlock) -> BrokerRun:
        """What is noted here, before anything is opened. Raises OSError."""
        ended = checkpoints.read_clean_shutdown(self.disk, self.path, may_block)
        return self._noted_run(ended, may_block)

    def _noted_run(self, ended: BrokerRun | None, may_block: MayBlock) -> BrokerRun:
        if ended is not None:
            return ended
        return checkpoints.read_running(self.disk, self.path, self._boot_id, may_block)

    def _open_all(
        self, defaults: LogConfig, topic_configs: Mapping[str, LogConfig], now_ms: int, may_block: MayBlock
    ) -> tuple[dict[TopicPartition, tuple[UnifiedLog, UUID]], dict[TopicPartition, str]]:
        disk = self.disk
        logs: dict[TopicPartition, tuple[UnifiedLog, UUID]] = {}
        corrupt: dict[TopicPartition, str] = {}
        names = self._names_on_disk(may_block)
        together = not self.clean and len(names) > SYNCED_ONE_BY_ONE
        for tp, name in self._replicas_among(names, may_block):
            config = topic_configs.get(tp.topic, defaults)
            metadata = f"{self.path}/{name}/{PARTITION_METADATA}"
            stored: checkpoints.PartitionMetadata | None = None
            try:
                stored = checkpoints.read_partition_metadata(disk, metadata, may_block)
                if not stored.known_to_checkpoints:
                    self.forget(tp)
                log = self._open(tp, None, config, now_ms, may_block, stored=stored, sync=not together)
                logs[tp] = (log, stored.topic_id or ZERO_UUID)
            except Exception as e:
                if (isinstance(e, OSError) and is_of_disk(e)) or ends_node(e):
                    raise
                known = isinstance(e, LogCorruptError | checkpoints.CheckpointError | CorruptBatchError)
                logger.error("%s stays offline: %s", tp, e, exc_info=not known)
                corrupt[tp] = str(e)
                self.unopened[tp] = None if stored is None else stored.topic_id
        if together:
            disk.sync_below(self.path, may_block)
        return logs, corrupt

    def _names_on_disk(self, may_block: MayBlock) -> Sequence[str]:
        """Of directories; made anew, if the disk has failed, and what was being deleted is empty."""
        disk, path = self.disk, self.path
        renewal.remove_what_names_left(disk, path, is_partition, may_block)
        names = directories_in(disk, path, may_block)
        if self.renewal_due or renewal.is_unfinished(disk, path, names):
            try:
                self._make_names_anew(may_block)
            except OSError as error:
                names = directories_in(disk, path, may_block)
                if error.errno not in renewal.NO_ROOM or renewal.is_unfinished(disk, path, names):
                    raise
                logger.warning("After its disk had failed, %s is made anew at a later start: %s", path, error)
                self.renewal_due = True
                return names
            self.renewal_due = False
            names = directories_in(disk, path, may_block)
        self._deleted.empty(names, may_block)
        return names

    def _make_names_anew(self, may_block: MayBlock) -> None:
        disk, path, known = self.disk, self.path, self._known()
        renewal.bring_home(disk, path, is_kept, may_block)
        self._deleted.empty_first(directories_in(disk, path, may_block), known, may_block)
        if not self.clean:
            checkpoints.lose_clean_shutdown(disk, path, may_block)
        renewal.renew(disk, path, is_kept, may_block)
        self._deleted.lose_old_names(directories_in(disk, path, may_block), known, may_block)

    def _correct_checkpoints(
        self, logs: Mapping[TopicPartition, tuple[UnifiedLog, UUID]], may_block: MayBlock
    ) -> None:
        """Recovery has fallen back behind some recovery points, and rewritten what they vouched for. What is
        said of a log that is gone is not to be believed of the next one of its name, either."""
        self._recovery_points |= {tp: log.recovery_point for tp, (log, _) in logs.items()}
        self._write_known(may_block)

    def _write_known(self, may_block: MayBlock) -> None:
        """The checkpoints, as the start has found and corrected them."""
        self.checkpoint(
            may_block, self.high_watermarks, self._recovery_points, self._log_starts, self.cleaned_to
        )

    def say_no_more_of(self, tps: Iterable[TopicPartition], may_block: MayBlock) -> None:
        """Before their logs are set aside as strays, whose names excuse nothing: a start that died in between
        would count as one that has lost something. Raises OSError."""
        for tp in tps:
            self.forget(tp)
        self._write_known(may_block)

    def remove_copies(self, paths: Iterable[str], may_block: MayBlock) -> None:
        """Of logs that are kept in another directory; they were set aside under these paths, whose names
        excuse what the checkpoints say of them until they say no more. Raises OSError."""
        self._write_known(may_block)
        for path in paths:
            self.before_emptying(path, may_block)
            self.disk.remove_tree(path, may_block)

    def keep_copy(self, path: str, may_block: MayBlock) -> None:
        """It was to be removed, and is the only one now that can be read. Raises OSError."""
        self.disk.rename(path, path.removesuffix(DELETED) + STRAY)
        self.sync(may_block)

    def _replicas_among(
        self, names: Iterable[str], may_block: MayBlock
    ) -> Iterator[tuple[TopicPartition, str]]:
        """Unfinished copies are noted on the way."""
        for name in names:
            tp = copy_of(name)
            if tp is not None:
                if tp in self.unfinished:  # begun anew, and the node died before this one was removed
                    self.disk.remove_tree(self.unfinished[tp], may_block)
                self.unfinished[tp] = f"{self.path}/{name}"
            else:
                replica = partition_of(name)
                if replica is not None:
                    yield replica, name

    def _known_end(self, tp: TopicPartition) -> int:
        """The end of the records that were durable, committed or deleted, according to the checkpoints."""
        known = (self._recovery_points, self.high_watermarks, self._log_starts)
        return max(offsets.get(tp, 0) for offsets in known)

    def open_log(
        self, tp: TopicPartition, topic_id: UUID | None, config: LogConfig, now_ms: int, may_block: MayBlock
    ) -> UnifiedLog:
        """Open a replica's log, made where there is none. Raises OSError, LogCorruptError, and BrokerError
        for a partition whose name no directory can have, or whose directory is another topic's."""
        name = directory_of(tp)
        if len(name) > MAX_NAME_BYTES:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is too long for a directory")
        if not self.disk.exists(self.path):  # it was there at the start: its disk is gone, not new
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        if topic_id is not None:
            self._remove_half_made(self.partition_path(tp), topic_id, may_block)
        return self._open(tp, topic_id, config, now_ms, may_block)

    def _open(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        now_ms: int,
        may_block: MayBlock,
        *,
        stored: checkpoints.PartitionMetadata | None = None,
        sync: bool = True,
    ) -> UnifiedLog:
        log = UnifiedLog(
            load(
                self.disk,
                self.partition_path(tp),
                config,
                recovery_point=self._recovery_points.get(tp, 0),
                log_start_offset=self._log_starts.get(tp, 0),
                high_watermark=self.high_watermarks.get(tp, 0),
                clean=self.clean,
                machine_restarted=self._machine_restarted,
                disk_failed=self._disk_failed,
                now_ms=now_ms,
                topic_id=topic_id,
                stored=stored,
                sync=sync,
                may_block=may_block,
            )
        )
        log.cleaned_to = min(self.cleaned_to.get(tp, 0), log.log_end_offset)
        return log

    def _remove_half_made(self, path: str, topic_id: UUID, may_block: MayBlock) -> None:
        """Remove a log whose creation failed half-way, for want of file descriptors, and which is in the way
        of the next topic of its name. It was never served: whatever else is here has an owner, or is no
        longer new."""
        metadata = f"{path}/{PARTITION_METADATA}"
        stored = checkpoints.read_partition_metadata(self.disk, metadata, may_block)
        if stored.topic_id in (None, topic_id) or stored.known_to_checkpoints:
            return
        logger.warning("%s was left half-made by topic %s; it is removed", path, stored.topic_id)
        self.disk.remove_tree(path, may_block)

    def open_future(
        self,
        tp: TopicPartition,
        tag: UUID,
        topic_id: UUID,
        config: LogConfig,
        now_ms: int,
        may_block: MayBlock,
    ) -> UnifiedLog:
        """An empty log for a copy of a replica that lies in another directory. Raises OSError."""
        if not self.disk.exists(self.path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        path = self.future_path(tp, tag)
        return UnifiedLog(load(
            self.disk, path, config,
            recovery_point=0, log_start_offset=0, clean=False, now_ms=now_ms, topic_id=topic_id,
            may_block=may_block,
        ))  # fmt: skip

    def set_unfinished_aside(self, tp: TopicPartition, tag: UUID, suffix: str) -> str | None:
        """Once another copy has been begun: until then it says that the replica is to come here. Returns the
        new path, if there was one. Raises OSError."""
        unfinished = self.unfinished.pop(tp, None)
        if unfinished is None:
            return None
        path = f"{self.path}/{name_aside(tp, tag, suffix)}"
        self.disk.rename(unfinished, path)
        self._set_aside[path] = None
        return path

    def future_path(self, tp: TopicPartition, tag: UUID) -> str:
        return f"{self.partition_path(tp)}.{tag.hex}-future"

    def _offsets(self, name: str, may_block: MayBlock) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(self.disk, f"{self.path}/{name}", may_block)
        except checkpoints.CheckpointError as e:
            # What it says can be found again, from the logs or from the leaders.
            logger.warning("%s; going on without it", e)
            return {}

    # --- checkpoints --------------------------------------------------------------------------

    def checkpoint(
        self,
        may_block: MayBlock,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        recovery_points: Mapping[TopicPartition, int] | None = None,
        log_starts: Mapping[TopicPartition, int] | None = None,
        cleaned_to: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Write those that changed since they were written last (blocks). Raises OSError."""
        for name, known, offsets in (
            (checkpoints.REPLICATION_OFFSETS, self.high_watermarks, high_watermarks),
            (checkpoints.RECOVERY_POINTS, self._recovery_points, recovery_points),
            (checkpoints.LOG_START_OFFSETS, self._log_starts, log_starts),
            (checkpoints.CLEANED_TO, self.cleaned_to, cleaned_to),
        ):
            if offsets is not None:
                # The loop may set one of them aside meanwhile, and then has the checkpoints written again.
                unopened = tuple(self.unopened)
                left = {tp: offset for tp in unopened if (offset := known.get(tp)) is not None}
                self._write(name, {**left, **offsets}, may_block)

    @property
    def is_checkpointed(self) -> bool:
        """Whether this process has written the checkpoints as a whole."""
        return self._written.keys() >= _UPDATED

    def update_checkpoints(
        self,
        may_block: MayBlock,
        high_watermarks: Mapping[TopicPartition, int],
        log_starts: Mapping[TopicPartition, int],
        cleaned_to: Mapping[TopicPartition, int],
    ) -> None:
        """Write the checkpoints with new offsets for these partitions, each of which has a high watermark;
        the others stay as they were written last."""
        for name, offsets in (
            (checkpoints.REPLICATION_OFFSETS, high_watermarks),
            (checkpoints.LOG_START_OFFSETS, log_starts),
            (checkpoints.CLEANED_TO, cleaned_to),
        ):
            entries = {**self._written[name], **offsets}
            for tp in high_watermarks.keys() - offsets.keys():
                entries.pop(tp, None)
            self._write(name, entries, may_block)

    def _write(self, name: str, entries: Mapping[TopicPartition, int], may_block: MayBlock) -> None:
        if self._written.get(name) != entries:  # before they are encoded: that takes ten times as long
            self.disk.write_atomic(f"{self.path}/{name}", checkpoints.encode_offsets(entries), may_block)
            self._written[name] = entries

    def mark_clean(self, run: BrokerRun, may_block: MayBlock) -> None:
        """The next start need not recover (blocks)."""
        checkpoints.write_clean_shutdown(self.disk, self.path, run, may_block)

    def mark_running(self, run: BrokerRun) -> None:
        """Note in which run the broker is; it outlives the process, not the machine. What says that pages may
        be lost stays where a log has yet to be recovered from that."""
        if self._boot_id and not self._unrecovered:
            due = self.renewal_due
            checkpoints.write_running(self.disk, self.path, run, self._boot_id, renewal_due=due)

    def mark_lost(self) -> None:
        """A write or a flush failed: what was not synced may be gone, as after another boot. Raises
        OSError."""
        if self._boot_id:
            checkpoints.mark_lost(self.disk, self.path)

    def _known(self) -> set[TopicPartition]:
        return {*self.high_watermarks, *self._recovery_points, *self._log_starts, *self.cleaned_to}

    def forget(self, tp: TopicPartition) -> None:
        """Its offsets in the checkpoints belong to a log that is gone."""
        self.high_watermarks.pop(tp, None)
        self._recovery_points.pop(tp, None)
        self._log_starts.pop(tp, None)
        self.cleaned_to.pop(tp, None)

    def set_aside(self, tp: TopicPartition, log: UnifiedLog | None, tag: UUID, suffix: str) -> str:
        """Rename a replica's directory; returns the new path. Durable after a `sync`. `log` is None where it
        could not be opened."""
        path = f"{self.path}/{name_aside(tp, tag, suffix)}"
        if log is None:
            self.disk.rename(self.partition_path(tp), path)
            del self.unopened[tp]
        else:
            log.disk.move(path)  # work in the executor finds the log's files under the new name
        self.forget(tp)
        self._set_aside[path] = None
        return path

    def sync(self, may_block: MayBlock) -> None:
        """Make the names here durable, and that others are gone. Raises OSError."""
        since = tuple(self._set_aside)  # the loop may set others aside meanwhile
        self.disk.sync_dir(self.path, may_block)
        for path in since:
            self._set_aside.pop(path, None)

    def before_emptying(self, path: str, may_block: MayBlock) -> None:
        """What was set aside there has lost its old name for certain: with that, a loss of power would bring
        back a log that lacks any of its files. Raises OSError."""
        if path in self._set_aside:
            self.sync(may_block)


def _lacks(tp: TopicPartition, end: int, known_end: int) -> bool:
    """Whether a log with that end has lost records that were durable or committed before `known_end`."""
    if known_end > end:
        logger.error("%s ends at offset %d, and had records up to %d", tp, end, known_end)
    return known_end > end
