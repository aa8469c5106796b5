"""Mutants of the log on its disk."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

LOG: Final = "data_plane/log"

STORAGE: Final = (
    mutant(
        "clean-shutdown-mark-believed",
        "KAFKA-15375",
        "the mark of a clean shutdown is used up by the next start",
        "data_plane/log_manager/log_dirs.py",
        "            checkpoints.remove_clean_shutdown(disk, self.path, may_block)\n",
        "            pass\n",
        (
            "unit/log/test_log_dir_crash_points.py",
            "unit/log/test_log_dirs.py",
        ),
    ),
    mutant(
        "append-after-a-failed-write",
        "KAFKA-10778",
        "a log whose write failed takes no more",
        f"{LOG}/log.py",
        "            raise mark_inconsistent(self, error)  # noqa: B904 - it has its cause",
        "            raise error",
        (
            "unit/log/test_half_way.py",
            "unit/log/test_failing_operations.py",
        ),
    ),
    mutant(
        "fsync-retried",
        "fsyncgate",
        "a failed fsync is never tried again and trusted",
        f"{LOG}/flush.py",
        "            data.sync(may_block)\n        for path",
        "            try:\n                data.sync(may_block)\n            except OSError:\n"
        "                data.sync(may_block)\n        for path",
        ("unit/log/test_failing_operations.py",),
    ),
    mutant(
        "hole-taken-for-a-torn-tail",
        "PAR",
        "where good batches lie behind the damage nothing is truncated",
        f"{LOG}/recovery.py",
        "        if behind or good_batch_behind(segment, position, claimed):\n",
        "        if False:\n",
        ("unit/log/test_recovery.py",),
    ),
    mutant(
        "corrupt-record-cut-by-the-leader",
        "CORDS",
        "synced records are not truncated, whatever happened to the machine",
        f"{LOG}/recovery.py",
        "            if not machine_restarted or end < recovery_point:\n",
        "            if not machine_restarted:\n",
        ("unit/replication/test_power_loss.py",),
    ),
    mutant(
        "empty-replica-where-a-directory-failed",
        "KAFKA-16234",
        "a replica that is offline is not created elsewhere",
        "data_plane/log_manager/found_logs.py",
        "        if self._unread_dir is not None and not is_new and tp not in self._logs:\n",
        "        if False:\n",
        ("unit/log/test_log_dirs.py",),
    ),
    mutant(
        "cleaned-beyond-the-last-stable-offset",
        "KAFKA-13194",
        "compaction stops at the last stable offset",
        "data_plane/log_manager/log_cleaner.py",
        "cleanable(replica.log, replica.last_stable_offset, now_ms)",
        "cleanable(replica.log, replica.log.log_end_offset, now_ms)",
        ("unit/replication/test_faults.py",),
    ),
    mutant(
        "flush-counts-over-a-truncation",
        "ours",
        "a flush from before a truncation does not raise the recovery point",
        f"{LOG}/flush.py",
        "        if work.generation == self._truncations and work.offset > self.recovery_point:\n",
        "        if work.offset > self.recovery_point:\n",
        (
            "unit/log/test_log.py",
            "unit/log/test_truncation_and_power_loss.py",
        ),
    ),
    mutant(
        "aborted-records-shown",
        "ours",
        "who reads committed records learns of the aborted in what is delivered",
        f"{LOG}/log_segments.py",
        "        i = self._by_base.bisect_right(max(piece.offset, piece.segment_base))\n",
        "        i = self._by_base.bisect_right(piece.offset)\n",
        ("unit/log/test_compaction.py",),
    ),
    mutant(
        "log-that-ends-in-a-gap",
        "ours",
        "a cleaned log still ends where it ended",
        f"{LOG}/cleaner.py",
        "        if reached < end:\n            new.fill_to(end, epoch)\n",
        "",
        ("unit/log/test_log_ends.py",),
    ),
    mutant(
        "transaction-before-the-logs-start",
        "ours",
        "readers are held at the log's start, not before it",
        f"{LOG}/log.py",
        "        return max(first, self.log_start_offset)\n",
        "        return first\n",
        ("unit/log/test_log_ends.py",),
    ),
    mutant(
        "greatest-timestamp-of-what-is-gone",
        "ours",
        "a rewritten batch has the greatest time of what is left of it",
        f"{LOG}/segment.py",
        "    return header.max_timestamp if header.record_count else NO_TIMESTAMP\n",
        "    return header.max_timestamp\n",
        (
            "unit/log/test_compaction.py",
            "unit/log/test_timestamps.py",
        ),
    ),
    mutant(
        "emptied-batch-loses-its-age",
        "ours",
        "an emptied batch keeps its producer's age",
        f"{LOG}/compaction.py",
        "        max_timestamp_ms=header.max_timestamp,\n",
        "        max_timestamp_ms=-1,\n",
        ("unit/log/test_compaction.py",),
    ),
    mutant(
        "merged-segments-come-back",
        "ours",
        "old segments are durably gone before the new one's name no longer says so",
        f"{LOG}/load.py",
        "        disk.sync_dir(directory, may_block)  # before the `.swap` name disappears, which says so\n",
        "",
        ("unit/log/test_crash_points.py",),
    ),
    mutant(
        "files-of-everybody",
        "ours",
        "what a node writes is its owner's alone",
        "metadata_quorum/foundation/disk.py",
        "flags, PRIVATE_FILE)",
        "flags, 0o666)",
        ("contract/test_disk.py",),
    ),
)
