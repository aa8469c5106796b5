"""The steps of a compaction that the log's owner takes; cleaner.py has the one that blocks, and their order.

Off the path of the data: log_manager/log_cleaner.py -> here -> log.
"""

from __future__ import annotations

from data_plane.log.cleaner import DEFAULT_MAP_BYTES, CleanWork, LogToClean, log_to_clean
from data_plane.log.consistency import all_or_inconsistent, check_consistent
from data_plane.log.log import MAY_REMOVE_SNAPSHOTS, UnifiedLog
from data_plane.log.producer_recovery import remove_snapshots


def cleanable(log: UnifiedLog, upper_offset: int, now_ms: int) -> LogToClean:
    """What a compaction could clean below `upper_offset`, the last stable offset."""
    return log_to_clean(log.segments, log.cleaned_to, upper_offset, log.config, now_ms)


def plan_cleaning(
    log: UnifiedLog, selected: LogToClean, now_ms: int, max_map_bytes: int = DEFAULT_MAP_BYTES
) -> CleanWork:
    """The work for an executor; then `replace_segments`, `sync_dir` in the executor, `finish_replacing`."""
    log.cleaning = CleanWork(
        log.disk,
        log.directory,
        log.config,
        selected,
        now_ms,
        frozenset(log.producers.states),
        tuple(log.aborted.entries),
        max_map_bytes,
    )
    return log.cleaning


def replace_segments(log: UnifiedLog, work: CleanWork) -> bool:
    """Put the cleaned segments in the place of the old ones; False where those were truncated or deleted
    meanwhile: then nothing is changed. Nor is anything where it raises OSError: the process has no file
    descriptors for it. Raises InconsistentLogError."""
    check_consistent(log)
    if log.cleaning is not work or work.cancelled:
        return False
    with log.disk.spare_files(log.log_segments.active.path):
        _replace(log, work)
    return True


@all_or_inconsistent
def _replace(log: UnifiedLog, work: CleanWork) -> None:
    log.cleaning = None
    log.discard_truncation()  # it was prepared for the old segments
    work.replacing = True
    log.unflushed.new_files = True
    for replacement in work.replacements:
        log.log_segments.replace(replacement, log.config.file_delete_delay_ms)
        base = replacement.new.base_offset
        log.aborted.replaced(base, replacement.end, replacement.aborted)
    remove_snapshots(log.disk, log.directory, range(work.last_removed + 1), MAY_REMOVE_SNAPSHOTS)
    log.cleaned_to = work.cleaned_to


@all_or_inconsistent
def finish_replacing(log: UnifiedLog, work: CleanWork) -> None:
    """The old names are durably removed: the new segments get theirs. Raises InconsistentLogError."""
    log.unflushed.new_files = True
    log.log_segments.finish_replacing(work.replacements)
