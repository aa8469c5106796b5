"""Partitions' directories, made anew once the disk below them has failed.

After a sync of a directory that failed, names count as durable that are not: no later sync writes them, and
the next loss of power takes them, with all that was synced beneath since. Others were removed, and come back.
Nobody can tell which. So the next start gives each partition a new directory, moves its files there, and puts
it into the place of the old one: now all names are new, and they are durable before anything else is changed.

    renewed.<attempt>/<age>/<partition>   on their way; whatever ends this start, the next one completes it

Each attempt has a name of its own, for those that the one before has made may be such names, too.
Used by log_dirs.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk

_ATTEMPT: Final = re.compile(r"renewed\.([1-9][0-9]{0,8})\Z")
"""No partition's directory has such a name."""


def is_unfinished(names: Iterable[str]) -> bool:
    """Whether a start before this one has ended on the way. `names`: of a log directory's directories."""
    return any(map(_ATTEMPT.match, names))


def renew(
    disk: Disk, log_dir: str, names: Collection[str], partitions: Iterable[str], may_block: MayBlock
) -> None:
    """Make the directories of all partitions anew, durably; `names` as above, `partitions` among them. No log
    is open. Raises OSError."""
    attempts = sorted(int(found[1]) for found in map(_ATTEMPT.match, names) if found)
    made = f"{log_dir}/renewed.{attempts[-1] + 1 if attempts else 1}"
    before = [f"{log_dir}/renewed.{attempt}" for attempt in attempts]
    # By age: of two files of a name the later one is the newer one.
    lying = {log_dir: list(partitions)}
    for attempt in before:
        for age in sorted(map(int, disk.list(attempt, may_block))):
            lying[f"{attempt}/{age}"] = disk.list(f"{attempt}/{age}", may_block)
    every = sorted({name for found in lying.values() for name in found})
    whole = f"{made}/{len(lying)}"
    for age in range(len(lying) + 1):
        disk.make_dirs(f"{made}/{age}")
    disk.sync_dir(made, may_block)
    disk.sync_dir(log_dir, may_block)
    # First the directories' own names: a loss of power that took one would leave a part of a log.
    for age, (place, found) in enumerate(lying.items()):
        for name in found:
            disk.rename(f"{place}/{name}", f"{made}/{age}/{name}")
        disk.sync_dir(f"{made}/{age}", may_block)
    for name in every:
        disk.make_dirs(f"{whole}/{name}")
    disk.sync_dir(whole, may_block)
    for age, found in enumerate(lying.values()):
        for name in found:
            for file in disk.list(f"{made}/{age}/{name}", may_block):
                disk.rename(f"{made}/{age}/{name}/{file}", f"{whole}/{name}/{file}")
    disk.sync_below(whole, may_block)
    for name in every:
        disk.rename(f"{whole}/{name}", f"{log_dir}/{name}")
    disk.sync_dir(log_dir, may_block)
    for attempt in (*before, made):
        disk.remove_tree(attempt, may_block)
    disk.sync_dir(log_dir, may_block)
