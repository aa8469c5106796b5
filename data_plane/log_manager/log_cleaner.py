"""Which log is compacted next: the dirtiest of those that are due, one at a time.

Runs behind everything else: the reading and writing is done in the executor, the loop only puts the
new segments in the place of the old ones. How far each log has been cleaned stands in the log dir's
`cleaner-offset-checkpoint`; without it a log is cleaned again from its start, which loses nothing.

Beside the data's way: replica_manager's timer -> here -> log/cleaner.py -> log.replace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from data_plane.log.cleaner import CleanWork, LogToClean, UncleanableError
from data_plane.log.consistency import InconsistentLogError
from data_plane.log.effects import Deletion
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.blocking import Blocking

logger = logging.getLogger(__name__)


class CleanerHost(Protocol):
    """What the cleaner needs of the partitions (replica_manager.py)."""

    def compacted(self) -> Iterable[Partition]:
        """Those of topics with cleanup.policy=compact that are online."""

    def delete_files(self, partition: Partition, deletions: Sequence[Deletion]) -> None: ...

    def storage_failed(self, partition: Partition, error: OSError | InconsistentLogError) -> None: ...

    def fault(self, work: str, error: Exception) -> None: ...

    def give_up(self, partition: Partition, work: str, error: Exception) -> None: ...

    async def checkpoint(self) -> None: ...


class LogCleaner:
    """See the module."""

    def __init__(
        self, host: CleanerHost, blocking: Blocking, now_ms: Callable[[], int], max_map_bytes: int
    ) -> None:
        """`max_map_bytes`: memory for the keys of one pass (log.cleaner.dedupe.buffer.size)."""
        self._host = host
        self._blocking = blocking
        self._now_ms = now_ms
        self.max_map_bytes = max_map_bytes
        self._running = False
        self._uncleanable: dict[Partition, str] = {}  # and why

    @property
    def uncleanable(self) -> Mapping[Partition, str]:
        """What is not compacted until the next start, and why (uncleanable-partitions-count)."""
        return {p: why for p, why in self._uncleanable.items() if not p.removed}

    async def sweep(self) -> None:
        """Clean until nothing is due. A call while another one runs does nothing."""
        if self._running:
            return
        self._running = True
        try:
            self._uncleanable = dict(self.uncleanable)
            cleaned: set[Partition] = set()
            while (chosen := self._dirtiest(cleaned)) is not None:
                partition, to_clean = chosen
                cleaned.add(partition)
                await self._clean(partition, to_clean)
        finally:
            self._running = False

    def _dirtiest(self, cleaned: set[Partition]) -> tuple[Partition, LogToClean] | None:
        now_ms = self._now_ms()
        due: list[tuple[float, Partition, LogToClean]] = []
        for partition in self._host.compacted():
            if partition in cleaned or partition in self._uncleanable:
                continue
            try:
                to_clean = partition.log.to_clean(partition.last_stable_offset, now_ms)
            except OSError as error:
                self._host.storage_failed(partition, error)
                continue
            except Exception as error:  # noqa: BLE001
                self._give_up(partition, error)
                continue
            if to_clean.is_due(partition.log.config):
                due.append((to_clean.ratio, partition, to_clean))
        return max(due, key=lambda d: d[0])[1:] if due else None

    async def _clean(self, partition: Partition, to_clean: LogToClean) -> None:
        log = partition.log
        now_ms = self._now_ms()
        work = log.plan_cleaning(to_clean, now_ms, self.max_map_bytes)
        try:
            await self._blocking(work.run)
            gone = partition.removed or partition.offline or partition.log is not log
            if gone or not log.replace(work, now_ms):
                await self._blocking(work.discard)
                return
            await self._blocking(partial(log.disk.sync_dir, log.directory))
            if not partition.removed and partition.log is log:
                log.finish_replacing(work)
                self._host.delete_files(partition, log.take_deletions())
                await self._host.checkpoint()
        except OSError as error:
            here = not partition.removed and partition.log is log and not work.cancelled
            if here:  # else its files went away meanwhile
                log.inconsistent |= work.replacing
                self._host.storage_failed(partition, error)
            await self._discard(work)
        except InconsistentLogError as error:
            self._host.storage_failed(partition, error)
        except Exception as error:  # noqa: BLE001 - a batch that it cannot take, or a bug
            if work.replacing:
                self._host.give_up(partition, "the cleaning", error)
            else:
                self._give_up(partition, error)
                await self._discard(work)
        else:
            logger.info("%s", _summary(partition, work))

    def _give_up(self, partition: Partition, error: Exception) -> None:
        """Leave that log as it is until the next start; the others are compacted all the same."""
        self._uncleanable[partition] = str(error)
        if isinstance(error, UncleanableError):
            logger.error("%s is not compacted any more: %s", partition.tp, error)
        else:
            self._host.fault(f"the cleaning of {partition.tp}, which is not compacted any more,", error)

    async def _discard(self, work: CleanWork) -> None:
        try:
            await self._blocking(work.discard)
        except OSError as error:
            logger.warning("what the cleaner had begun in %s is left: %s", work.directory, error)


def _summary(partition: Partition, work: CleanWork) -> str:
    before = sum(segment.size for r in work.replacements for segment in r.old)
    after = sum(r.new.size for r in work.replacements)
    return f"Compacted {partition.tp} up to offset {work.cleaned_to}: {before} bytes are now {after}"
