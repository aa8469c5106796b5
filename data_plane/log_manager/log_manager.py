"""Which logs a broker has, and in which of its log directories (Kafka's LogManager).

    start       load -> UnclaimedLogs, until metadata claims each
    metadata    DeltaApplier -> get_or_create, add; remove, set_aside
    copies      ReplicaMoves -> replace

A replica's log is created in the directory chosen for it (AlterReplicaLogDirs), or else in the online one
with the fewest logs. A log that goes is renamed at once, and its files are removed after
file.delete.delay.ms. What this leaves undone is noted in `unsynced` and `checkpoints_stale`;
checkpoint_writer.py makes it durable.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.log.checkpoints import BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log_manager.background_work import BackgroundWork
from data_plane.log_manager.directory_names import DELETED, STRAY
from data_plane.log_manager.found_logs import UnclaimedLog, UnclaimedLogs
from data_plane.log_manager.local_replica import LocalReplica
from data_plane.log_manager.log_configs import LogConfigs
from data_plane.log_manager.log_creation import CreatedLogs, NewLog
from data_plane.log_manager.log_dir_failures import LogDirFailures
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import is_of_disk
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from metadata_quorum.foundation.uuids import uuid_text
from metadata_quorum.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

NEW_LOG: Final = MayBlock("opening an empty log waits for no device")
MOST_PREFERRED: Final = 50_000
"""Replicas that are not here yet for which a directory is remembered: a client may name any."""


class PlacedLog(NamedTuple):
    """The log of a replica, the directory it lies in, and the replica's last known high watermark."""

    log: UnifiedLog
    directory: LogDir
    high_watermark: int


class LogManager:
    """All logs of one broker."""

    def __init__(
        self,
        dirs: Sequence[LogDir],
        configs: LogConfigs,
        failures: LogDirFailures,
        background: BackgroundWork,
        rng: random.Random,
        now_ms: Callable[[], int],
    ) -> None:
        self.dirs = list(dirs)
        self.configs = configs
        self.unclaimed = UnclaimedLogs(rng, failures.fail)
        failures.subscribe(self.unclaimed.directory_failed)
        failures.subscribe(self._directory_failed)
        self.unsynced: dict[LogDir, deque[UnifiedLog]] = {}
        """Directories in which a log was created or renamed since they were synced; the created logs."""
        self.uncheckpointed: dict[LocalReplica, None] = {}
        """Replicas that are new, or have other offsets than the checkpoints; a set has no order."""
        self.checkpoints_stale = False
        """The checkpoint files name logs that are gone, or offsets that no longer hold."""
        self._failures = failures
        self._background = background
        self._rng = rng
        self._now_ms = now_ms
        self._preferred: OrderedDict[TopicPartition, LogDir] = OrderedDict()
        """Of replicas that are not here yet; last those for which one was chosen last."""
        self._dir_of: dict[LocalReplica, LogDir] = {}
        self._failed_before = frozenset[UUID]()  # of the last run, and not here again yet
        self._held: Counter[LogDir] = Counter()
        """How many logs each directory holds; kept, because every change of the metadata may ask for it."""

    # --- start --------------------------------------------------------------------------------

    def load(self, may_block: MayBlock, image: MetadataImage | None = None) -> None:
        """Open the logs on disk (blocks; before the node serves). `image`: the metadata known already."""
        configs: dict[str, LogConfig] = {}
        if image is not None:
            self.configs.take_defaults(image)
            configs = {topic: self.configs.of(image, topic) for topic in image.topics_by_name}
        self._mark_failed(may_block)
        self.unclaimed.load(self.dirs, self.configs.defaults, configs, self._now_ms(), may_block)
        if not self.all_online:
            self._say_that_it_is_not_whole()
        if not all(each.is_identified for each in self.dirs):
            return  # one that is missing may be that one
        for missing in sorted(self._missing_dirs()):
            logger.warning(
                "log dir %s of the last run is not among log.dirs: its replicas are made anew, and this "
                "broker is no eligible leader (ELR) until it has caught up",
                uuid_text(missing),
            )

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last run, if everything stored then is here; else -1."""
        epochs = {directory.last_run.broker_epoch for directory in self.dirs if directory.online}
        whole = len(epochs) == 1 and self.unclaimed.whole and self.all_online
        return epochs.pop() if whole and not self._missing_dirs() else -1

    def _missing_dirs(self) -> set[UUID]:
        """Log dirs of the last run that are not here. Which replicas they had nobody may know: the controller
        has not been told where a new replica is, or has been told that it is LOST. So a broker that lacks one
        is one that has lost something."""
        return {*self._dirs_before.difference(directory.directory_id for directory in self.dirs)}

    @property
    def _dirs_before(self) -> frozenset[UUID]:
        """The log dirs of the last run."""
        return frozenset[UUID]().union(*(directory.last_run.log_dirs for directory in self.dirs))

    @property
    def all_online(self) -> bool:
        return all(directory.online for directory in self.dirs)

    def run_of(self, broker_epoch: int) -> BrokerRun:
        """This run, registered in that epoch. Once a directory has failed it is one that has lost something:
        if the directory comes back, its own mark may not have been written (a disk that is read-only). One
        whose id cannot be read may be any of those that there were."""
        ids = frozenset(each.directory_id for each in self.dirs if each.is_identified)
        all_identified = all(each.is_identified for each in self.dirs)
        failed = ids if all_identified else ids | self._failed_before | self._dirs_before
        failed -= {each.directory_id for each in self.dirs if each.online}
        return BrokerRun(broker_epoch if self.all_online else -1, ids, failed)

    def _mark_failed(self, may_block: MayBlock) -> None:
        """Before they are opened: those that the others say have failed in the last run."""
        for directory in self.dirs:
            if directory.online:
                with contextlib.suppress(OSError):  # it will be met again
                    self._failed_before |= directory.look_up_last_run(may_block).failed
        for directory in self.dirs:
            if directory.online and directory.directory_id in self._failed_before:
                try:
                    directory.mark_lost()
                except OSError as e:
                    self._failures.fail(directory, e)

    def mark_running(self, broker_epoch: int) -> None:
        """The broker is registered in that epoch now."""
        for directory in self.dirs:
            if directory.online:
                try:
                    directory.mark_running(self.run_of(broker_epoch))  # others may fail on the way
                except OSError as e:
                    self._failures.report(directory, e)

    def _directory_failed(self, failed: LogDir, error: OSError) -> None:
        self._say_that_it_is_not_whole()

    def _say_that_it_is_not_whole(self) -> None:
        """A directory has failed: the others remember it, should it come back. (What one that is not open yet
        says of its last run is still to be read.)"""
        run = self.run_of(-1)
        run = run._replace(log_dirs=self._dirs_before | run.log_dirs)
        for directory in self.dirs:
            if directory.online and directory.loaded:
                try:
                    directory.mark_running(run)
                except OSError:  # of a disk that is full, say: but for this, it may do
                    with contextlib.suppress(OSError):
                        directory.mark_lost()

    # --- which replica lies where -------------------------------------------------------------

    @property
    def replicas(self) -> Mapping[LocalReplica, LogDir]:
        return self._dir_of

    def dir_of(self, replica: LocalReplica) -> LogDir:
        """Raises KeyError where the replica is not here (any longer)."""
        return self._dir_of[replica]

    def dir_at(self, path: str) -> LogDir | None:
        return next((each for each in self.dirs if each.path == path.rstrip("/")), None)

    def prefer_dir(self, tp: TopicPartition, directory: LogDir) -> None:
        """Choose the directory in which the replica's log will be created."""
        self._preferred[tp] = directory
        self._preferred.move_to_end(tp)
        if len(self._preferred) > MOST_PREFERRED:
            self._preferred.popitem(last=False)

    def add(self, replica: LocalReplica, directory: LogDir) -> None:
        self._dir_of[replica] = directory
        self.uncheckpointed[replica] = None
        self._held[directory] += 1
        self._preferred.pop(replica.tp, None)

    def remove(self, replica: LocalReplica) -> LogDir:
        """Its log's files stay; `set_aside` takes them away."""
        directory = self._dir_of.pop(replica)
        self._held[directory] -= 1
        return directory

    def replace(self, replica: LocalReplica, log: UnifiedLog, directory: LogDir) -> None:
        """`log`, a copy under the replica's name in `directory`, takes the place of its log."""
        old, old_log = self._dir_of[replica], replica.log
        replica.log = log
        self._dir_of[replica] = directory
        self._held[old] -= 1
        self._held[directory] += 1
        # Not closed: a fetch may still read the slice that it has found there.
        self._rename(replica.tp, old_log, old, DELETED)

    def logs_in(
        self, directory: LogDir
    ) -> tuple[dict[TopicPartition, UnifiedLog], dict[TopicPartition, int]]:
        """The logs there and their high watermarks. With the unclaimed ones: the checkpoints must not lose
        their offsets meanwhile."""
        logs = self.unclaimed.in_dir(directory)
        hws = {tp: hw for tp, hw in directory.high_watermarks.items() if tp in logs}
        for replica, its_dir in self._dir_of.items():
            if its_dir is directory:
                logs[replica.tp] = replica.log
                hws[replica.tp] = replica.high_watermark
        return logs, hws

    # --- logs that come -----------------------------------------------------------------------

    def get_or_create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig) -> PlacedLog | None:
        """The log of a replica that is new here: found at the start, or created. None where there cannot be
        one now. Raises OSError that is not the disk's (no file descriptor left)."""
        self.clear_way(tp, topic_id, STRAY)
        found: UnclaimedLog | None = None
        for each in sorted(self.unclaimed.take(tp), key=lambda each: each.topic_id != topic_id):
            if found is None and each.belongs_to(topic_id):
                found = each
            else:
                self._set_other_aside(tp, each)
        if found is not None:
            found.log.config = config
            placed = PlacedLog(found.log, found.directory, found.directory.high_watermarks.get(tp, 0))
        elif self.unclaimed.is_offline(tp, topic_id):
            return None
        else:
            created = self._create(tp, topic_id, config)
            if created is None:
                return None
            placed = created
        log = placed.log
        if log.topic_id is None:
            log.topic_id, log.unidentified = topic_id, True
        if log.unidentified:
            self.unsynced.setdefault(placed.directory, deque()).append(log)
        return placed

    def _create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig) -> PlacedLog | None:
        """None where no directory is online. Raises OSError (but for the disk's), BrokerError and
        LogCorruptError."""
        while (directory := self._directory_for(tp, self._held)) is not None:
            try:
                log = directory.open_log(tp, topic_id, config, self._now_ms(), NEW_LOG)
            except OSError as e:
                if not is_of_disk(e):
                    raise
                self._failures.fail(directory, e)
            else:
                return PlacedLog(log, directory, 0)
        return None

    def _directory_for(self, tp: TopicPartition, held: Mapping[LogDir, int]) -> LogDir | None:
        """The directory for a new log, given how many logs each one holds."""
        preferred = self._preferred.get(tp)
        if preferred is not None and preferred.online:
            return preferred
        online = [each for each in self.dirs if each.online]
        return min(online, key=lambda each: held.get(each, 0), default=None)

    def place(
        self,
        new: Sequence[tuple[TopicPartition, UUID, PartitionRegistration, LogConfig]],
        broker_id: int,
    ) -> Iterator[NewLog]:
        """Where `get_or_create` would create the logs of these partitions, which are new here."""
        held = self._held.copy()
        for tp, topic_id, registration, config in new:
            self.clear_way(tp, topic_id, STRAY)
            self.unclaimed.suspect(tp, registration, broker_id)
            directory = self._directory_for(tp, held)
            if directory is not None and not self.unclaimed.is_offline(tp, topic_id):
                held[directory] += 1
                yield NewLog(tp, topic_id, config, directory)

    def add_created(self, created: CreatedLogs) -> None:
        """Let `get_or_create` find these logs."""
        for new, log in created.logs:
            if new.directory.online:
                self.unclaimed.put(new.tp, UnclaimedLog(log, new.topic_id, new.directory))
                self.unsynced.setdefault(new.directory, deque()).append(log)

    # --- logs that go -------------------------------------------------------------------------

    def set_aside(self, tp: TopicPartition, log: UnifiedLog, directory: LogDir, suffix: str) -> None:
        """Close and rename a log; `suffix`: DELETED removes its files later, STRAY keeps them."""
        if log.cleaning is not None:
            log.cleaning.give_up()
        try:
            log.close()
        except OSError as e:
            if self._failures.report(directory, e):
                return
        self._rename(tp, log, directory, suffix)

    def _set_other_aside(self, tp: TopicPartition, found: UnclaimedLog) -> None:
        """Another topic's log under the partition's name. Nobody has said that this topic was deleted: the
        quorum may have begun anew, or be restored from before it was created."""
        log = found.log
        kept = log.log_end_offset > log.log_start_offset
        if kept:
            logger.warning("%s in %s is of another topic of that name; set aside", tp, found.directory.path)
        self.set_aside(tp, log, found.directory, STRAY if kept else DELETED)

    def forget(self, topic_id: UUID) -> None:
        """The topic is deleted: what could not be opened of it goes, too."""
        for tp in self.unclaimed.forget(topic_id):
            self.clear_way(tp, None, DELETED)

    def clear_way(self, tp: TopicPartition, topic_id: UUID | None, suffix: str) -> None:
        """Set aside what lies here under the partition's name, cannot be opened, and is not of that topic.
        Whose it is may not be known: then it may be that topic's, and its files are kept in any case."""
        for directory in self.unclaimed.unreadable.get(tp, ()):
            its_topic = directory.unopened[tp]
            if directory.online and (topic_id is None or its_topic not in (None, topic_id)):
                logger.warning("%s, which cannot be opened, is of no topic any longer; set aside", tp)
                if self._rename(tp, None, directory, STRAY if its_topic is None else suffix):
                    self.unclaimed.taken_away(tp, directory)

    def _rename(self, tp: TopicPartition, log: UnifiedLog | None, directory: LogDir, suffix: str) -> bool:
        try:
            path = directory.set_aside(tp, log, UUID(int=self._rng.getrandbits(128)), suffix)
        except OSError as e:
            self._failures.report(directory, e)
            return False
        self.checkpoints_stale = True
        self.unsynced.setdefault(directory, deque())
        if suffix == DELETED:
            config = self.configs.defaults if log is None else log.config
            delay = config.file_delete_delay_ms / 1000
            self._background.timer.call_later(delay, partial(self._background.remove_in, directory, path))
        return True
