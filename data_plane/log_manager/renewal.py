"""Partitions' directories, made anew once the disk below them has failed.

After a sync of a directory that failed, names count as durable that are not: no later sync writes them, and
the next loss of power takes them, with all that was synced beneath since. Others were removed, and come back.
Nobody can tell which. So the next start gives each partition a new directory, moves its files there, and puts
it into the place of the old one: now all names are new, and they are durable before anything else is changed.

    renewed.<attempt>/<partition>   on their way; whatever ends this start, the next one completes it

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
    lying = [(log_dir, name) for name in partitions]
    lying += [(attempt, name) for attempt in before for name in disk.list(attempt, may_block)]
    disk.make_dirs(made)
    for name in sorted({name for _, name in lying}):
        disk.make_dirs(f"{made}/{name}")
    disk.sync_dir(made, may_block)
    disk.sync_dir(log_dir, may_block)
    for directory, name in lying:  # the last attempt comes last: of two files its is the newer one
        for file in disk.list(f"{directory}/{name}", may_block):
            disk.rename(f"{directory}/{name}/{file}", f"{made}/{name}/{file}")
    disk.sync_below(made, may_block)
    for name in disk.list(made, may_block):
        disk.rename(f"{made}/{name}", f"{log_dir}/{name}")
    disk.sync_dir(log_dir, may_block)
    for attempt in (*before, made):
        disk.remove_tree(attempt, may_block)
    disk.sync_dir(log_dir, may_block)
