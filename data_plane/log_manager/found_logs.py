"""Logs found in the log directories at the start, until the metadata claims each of them, or turns out not
to.

A log may exist and yet not be usable: damaged in its middle, or perhaps in a directory that cannot be read.
Its partition is then offline (KAFKA_STORAGE_ERROR): an empty log created in its place could come to lead, and
acknowledged records would be lost.

Used by log_manager.py, and by replication/ to say why a partition is offline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log_manager.directory_names import DELETED, STRAY
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import is_of_disk
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition

logger = logging.getLogger(__name__)

_NO_TOPIC_ID: Final = 0


@dataclass(frozen=True, slots=True)
class UnclaimedLog:
    """One log, open."""

    log: UnifiedLog
    topic_id: UUID
    directory: LogDir

    def belongs_to(self, topic_id: UUID) -> bool:
        """Whether it is not of an older topic of the same name."""
        return self.topic_id == topic_id or self.topic_id.int == _NO_TOPIC_ID

    @property
    def rank(self) -> tuple[int, int, int, bool]:
        """Orders logs of the same partition: the one with the later epoch has what was committed. Of two that
        are alike, one may lack files; or a loss of power may take its name."""
        log = self.log
        is_durable = not self.directory.renewal_due
        return log.epochs.latest, log.log_end_offset, -log.log_start_offset, is_durable


class _Double(NamedTuple):
    """Two logs of the same topic's partition."""

    tp: TopicPartition
    kept: UnclaimedLog
    spare: UnclaimedLog

    @property
    def is_copy(self) -> bool:
        """Whether nothing goes with the spare one. (The other's name need not be durable where the disk has
        failed, and its directories could not be made anew.)"""
        kept = self.kept.directory
        is_safe = kept.online and not kept.renewal_due
        return is_safe and self.spare.log.epochs.latest == self.kept.log.epochs.latest


class NotCreated(NamedTuple):
    """A partition for which there could be no log."""

    topic_id: UUID
    reason: str
    retriable: bool
    """Whether the reason is temporary: the process had no file descriptor left."""


class UnclaimedLogs:
    """See the module."""

    def __init__(self, rng: Random, fail: Callable[[LogDir, OSError], None]) -> None:
        self._rng = rng
        self._fail = fail
        self._logs: dict[TopicPartition, tuple[UnclaimedLog, ...]] = {}
        """One of each topic that has had the name, as a rule one."""
        self._offline: dict[TopicPartition, str] = {}  # and why
        self._unreadable: dict[TopicPartition, tuple[LogDir, ...]] = {}
        """Of those, what lies on disk and cannot be opened; and where."""
        self._not_created: dict[TopicPartition, NotCreated] = {}
        self._offline_ids: dict[tuple[UUID, int], TopicPartition] = {}
        self._unread_dir: str | None = None  # one that failed before it was known what lies in it

    def load(
        self,
        dirs: Iterable[LogDir],
        defaults: LogConfig,
        configs: Mapping[str, LogConfig],
        now_ms: int,
        may_block: MayBlock,
    ) -> None:
        """Open all of them (blocks)."""
        doubles: list[_Double] = []
        for directory in dirs:
            if not directory.online:
                self._unread_dir = directory.path
                continue
            try:
                logs, corrupt = directory.load(defaults, configs, now_ms, may_block)
            except OSError as e:
                self._unread_dir = directory.path
                self._fail(directory, e)
                continue
            self._offline.update(corrupt)
            for tp in corrupt:
                self._unreadable[tp] = (*self._unreadable.get(tp, ()), directory)
            for tp, (log, topic_id) in logs.items():
                doubles += self._enter(tp, UnclaimedLog(log, topic_id, directory))
        strays: dict[LogDir, list[TopicPartition]] = {}
        for each in doubles:  # now that all are entered that a directory has which fails here
            if not each.is_copy:
                strays.setdefault(each.spare.directory, []).append(each.tp)
        for directory, tps in strays.items():
            with self._failing(directory):
                directory.say_no_more_of(tps, may_block)
        copies: dict[LogDir, dict[str, LogDir]] = {}
        for each in doubles:
            self._put_away(each, copies)
        for directory, kept_in in copies.items():
            if directory.online:
                with self._failing(directory):
                    for path in [path for path, kept in kept_in.items() if not kept.online]:
                        del kept_in[path]  # where another was to be put away, and that failed
                        directory.keep_copy(path, may_block)
                    directory.remove_copies(kept_in, may_block)

    def _enter(self, tp: TopicPartition, found: UnclaimedLog) -> Sequence[_Double]:
        """If a topic's log is in two directories, either it was being moved when the node died, and both are
        equal, or the disk of one was missing for a time, and has the older log. (If two topics had the same
        name one after the other, both logs stay: metadata claims one.)"""
        others = self._logs.get(tp, ())
        known = next((each for each in others if each.topic_id == found.topic_id), None)
        if known is None:
            self._logs[tp] = (*others, found)
            return ()
        kept, spare = (found, known) if known.rank < found.rank else (known, found)
        self._logs[tp] = (*(each for each in others if each is not known), kept)
        return (_Double(tp, kept, spare),)

    def _put_away(self, double: _Double, copies: dict[LogDir, dict[str, LogDir]]) -> None:
        """`copies`: by their directory and path, and where the other is kept."""
        tp, kept, spare = double
        directory, is_copy = spare.directory, double.is_copy
        if not directory.online:
            return
        done = "removed" if is_copy else "set aside"
        logger.warning("%s lies in two directories; the copy in %s is %s", tp, directory.path, done)
        with self._failing(directory):
            spare.log.close()
            tag = UUID(int=self._rng.getrandbits(128))
            path = directory.set_aside(tp, spare.log, tag, DELETED if is_copy else STRAY)
            if is_copy:
                copies.setdefault(directory, {})[path] = kept.directory

    @contextmanager
    def _failing(self, directory: LogDir) -> Iterator[None]:
        """An error of its disk takes the directory offline."""
        try:
            yield
        except OSError as e:
            if is_of_disk(e):
                self._fail(directory, e)
            else:
                logger.warning("a copy in %s is left: %s", directory.path, e)

    def directory_failed(self, directory: LogDir, error: OSError) -> None:
        """What was found there is served no more than what could not be opened."""
        for tp, found in list(self._logs.items()):
            left = tuple(each for each in found if each.directory is not directory)
            for lost in found:
                if lost.directory is directory:
                    self._offline[tp] = f"{tp} stays offline: {directory.path} has failed: {error}"
                    self._unreadable[tp] = (*self._unreadable.get(tp, ()), directory)
                    directory.unopened[tp] = lost.topic_id if lost.topic_id.int != _NO_TOPIC_ID else None
            if left:
                self._logs[tp] = left
            else:
                del self._logs[tp]

    @property
    def whole(self) -> bool:
        """Whether every log that was found can be served."""
        return not self._offline and not self._not_created

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._logs

    def __iter__(self) -> Iterator[TopicPartition]:
        """The partitions whose logs nothing has claimed yet."""
        return iter(list(self._logs))

    def put(self, tp: TopicPartition, found: UnclaimedLog) -> None:
        """A log that was made for a partition that is about to be claimed."""
        self._logs[tp] = (*self._logs.get(tp, ()), found)

    def take(self, tp: TopicPartition) -> Sequence[UnclaimedLog]:
        """Take out all that are there, to be claimed or set aside."""
        return self._logs.pop(tp, ())

    def in_dir(self, directory: LogDir) -> dict[TopicPartition, UnifiedLog]:
        return {
            tp: found.log for tp, each in self._logs.items() for found in each if found.directory is directory
        }

    # --- what is not served -------------------------------------------------------------------

    def suspect(self, tp: TopicPartition, registration: PartitionRegistration, broker_id: int) -> None:
        """A partition that is not new here may lie in a directory that could not be read. One that a
        reassignment has just added is made elsewhere, even if it was here before: nobody counts on what it
        may have in a directory that has failed."""
        counted = {*registration.isr, *registration.elr, *registration.last_known_elr}
        if broker_id in {*registration.adding_replicas} - counted:
            if not any(each.online for each in self._unreadable.get(tp, ())):
                self._offline.pop(tp, None)
            return
        is_made = registration.leader_epoch == 0 and registration.partition_epoch == 0
        if self._unread_dir is not None and not is_made and tp not in self._logs:
            reason = f"{tp} stays offline: it may lie in {self._unread_dir}, which cannot be read"
            logger.error("%s", reason)
            self._offline[tp] = reason

    def creation_failed(self, tp: TopicPartition, topic_id: UUID, reason: str, *, retriable: bool) -> None:
        """Its log could not be created; `retriable`: for a reason that passes."""
        self._not_created[tp] = NotCreated(topic_id, reason, retriable)
        self._offline_ids[topic_id, tp.partition] = tp

    @property
    def needs_retry(self) -> bool:
        """Whether the creation of any is to be tried again."""
        return any(each.retriable for each in self._not_created.values())

    def take_retriable(self) -> list[tuple[UUID, int]]:
        """Take out partitions whose creation is to be tried again; the caller creates them."""
        found = [(tp, each.topic_id) for tp, each in self._not_created.items() if each.retriable]
        for tp, topic_id in found:
            del self._not_created[tp]
            self._offline_ids.pop((topic_id, tp.partition), None)
        return [(topic_id, tp.partition) for tp, topic_id in found]

    def is_offline(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """Whether the topic's partition is assigned here but cannot be served. A log on disk is in the way of
        any topic of its name, unless its directory has failed; a log that could not be created concerns one
        topic."""
        if tp in self._offline and self._is_in_the_way(tp, topic_id):
            self._offline_ids[topic_id, tp.partition] = tp
            return True
        not_created = self._not_created.get(tp)
        return not_created is not None and not_created.topic_id == topic_id

    def _is_in_the_way(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """Another topic's log is made beside one in a directory that has failed."""
        directories = self._unreadable.get(tp, ())
        may_be_its_own = (each.online or each.unopened.get(tp) in (None, topic_id) for each in directories)
        return not directories or any(may_be_its_own)

    @property
    def unreadable(self) -> Mapping[TopicPartition, Sequence[LogDir]]:
        """What lies on disk and cannot be opened."""
        return self._unreadable

    def taken_away(self, tp: TopicPartition, directory: LogDir) -> None:
        """What could not be opened lies there no longer."""
        rest = tuple(each for each in self._unreadable.pop(tp) if each is not directory)
        if rest:
            self._unreadable[tp] = rest
        else:
            self._offline.pop(tp, None)

    def forget(self, topic_id: UUID) -> Sequence[TopicPartition]:
        """The topic is deleted. One of the same name begins without its failures, but for logs still on disk,
        which are returned."""
        unreadable = []
        for key in [key for key in self._offline_ids if key[0] == topic_id]:
            tp = self._offline_ids.pop(key)
            if tp in self._unreadable:
                unreadable.append(tp)
            else:
                self._offline.pop(tp, None)
            if tp in self._not_created and self._not_created[tp].topic_id == topic_id:
                del self._not_created[tp]
        return unreadable

    def why_offline(self, tp: TopicPartition) -> str | None:
        not_created = self._not_created.get(tp)
        return not_created.reason if not_created is not None else self._offline.get(tp)

    def offline_by_id(self, topic_id: UUID, partition: int) -> TopicPartition | None:
        return self._offline_ids.get((topic_id, partition))
