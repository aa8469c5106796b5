"""Partitions' directories, and all names, made anew once the disk below them has failed.

After a sync of a directory that failed, names count as durable that are not: no later sync writes them, and
the next loss of power takes them, with all that was synced beneath since. Others were removed, and come back.
Nobody can tell which. A name that must not is made once more, and removed (`lose_names`). And the next start
gives each partition a new directory, moves its files there, and puts it into the place of the old one: now
all names are new, and they are durable before anything else is changed.

    renewed.<attempt>/0/<partition>   the old directories
    renewed.<attempt>/1/<partition>   the new ones, which the files move to

Whatever ends this start, the next one brings home what is on its way, and begins anew. Each attempt has
directories of its own, for those that the one before has made may have such names, too; and those stay until
all is new: on disk the logs may be there still, and nowhere else, so that no log may be served before. On a
disk without room for new directories, as where a full one has failed, the old ones stay until a later start,
if no start has ended on the way. What is a link stays as it is: whoever has made it means the directory
behind it.
Used by log_dirs.py.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, directories_in

logger = logging.getLogger(__name__)

IsKept = Callable[[str], bool]
"""Whether a directory of that name is made anew."""

_ATTEMPT: Final = re.compile(r"renewed\.([1-9][0-9]{0,8})\Z")
"""No partition's directory has such a name."""
_OLD: Final = "0"
_NEW: Final = "1"

_NOT_MOVED: Final = frozenset({errno.ENOTDIR, errno.EBUSY, errno.EXDEV})
"""A partition's directory is a link, or a file system by itself."""
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EXDEV})
"""EXDEV: the room of another project's quota."""


def is_unfinished(disk: Disk, log_dir: str, names: Iterable[str]) -> bool:
    """Whether a start before this one has ended on the way. `names`: of a log directory's directories."""
    return any(
        disk.exists(f"{made}/{age}") for made in _attempts(log_dir, names).values() for age in (_OLD, _NEW)
    )


def bring_home(disk: Disk, log_dir: str, is_kept: IsKept, may_block: MayBlock) -> None:
    """What starts before this one have on their way. Raises OSError."""
    attempts = _attempts(log_dir, directories_in(disk, log_dir, may_block))
    for made in reversed(attempts.values()):  # the last one has the logs, those before it empty directories
        _bring_home(disk, log_dir, made, is_kept, may_block)


def renew(disk: Disk, log_dir: str, is_kept: IsKept, may_block: MayBlock) -> None:
    """Make all those directories anew, durably, once all are at home. No log is open. Raises OSError; where
    that is of `NO_ROOM`, and nothing is unfinished, the old ones are in their place."""
    names = directories_in(disk, log_dir, may_block)
    before = _attempts(log_dir, names)
    made = f"{log_dir}/renewed.{max(before, default=0) + 1}"
    try:
        _make_anew(disk, log_dir, list(filter(is_kept, names)), made, may_block)
    except OSError as error:
        if error.errno in NO_ROOM:
            _bring_home(disk, log_dir, made, is_kept, may_block)
            _remove(disk, log_dir, made, may_block)
        raise
    for left in before.values():
        _remove(disk, log_dir, left, may_block)


def _attempts(log_dir: str, names: Iterable[str]) -> dict[int, str]:
    """Their directories, by their numbers. `names`: of the log directory's directories."""
    found = {int(match[1]): f"{log_dir}/{match[0]}" for match in map(_ATTEMPT.match, names) if match}
    return dict(sorted(found.items()))


def lose_names(disk: Disk, log_dir: str, names: Iterable[str], may_block: MayBlock) -> None:
    """Names that nothing has, so that no loss of power brings back what had them. It takes no room but the
    name's. Raises OSError."""
    for name in sorted(names):
        disk.open(f"{log_dir}/{name}", create=True).close()
        disk.remove(f"{log_dir}/{name}")
    disk.sync_dir(log_dir, may_block)


def remove_what_names_left(
    disk: Disk, log_dir: str, is_partition: Callable[[str], bool], may_block: MayBlock
) -> None:
    """A start has died while it lost names: an empty file would be in the way of a partition's directory."""
    for name, size in disk.sizes(log_dir, may_block).items():
        if not size and is_partition(name):
            disk.remove(f"{log_dir}/{name}")


def _make_anew(disk: Disk, log_dir: str, partitions: Sequence[str], made: str, may_block: MayBlock) -> None:
    old, new = f"{made}/{_OLD}", f"{made}/{_NEW}"
    disk.make_dirs(old)
    disk.make_dirs(new)
    disk.sync_dir(made, may_block)
    disk.sync_dir(log_dir, may_block)
    # First the directories' own names: a loss of power that took one would leave a part of a log.
    partitions = [name for name in partitions if _moves(disk, f"{log_dir}/{name}", f"{old}/{name}")]
    disk.sync_dir(old, may_block)
    for name in partitions:
        disk.make_dirs(f"{new}/{name}")
    disk.sync_dir(new, may_block)
    for name in partitions:
        for file in disk.list(f"{old}/{name}", may_block):
            disk.rename(f"{old}/{name}/{file}", f"{new}/{name}/{file}")
    disk.sync_below(new, may_block)
    for name in partitions:
        disk.rename(f"{new}/{name}", f"{log_dir}/{name}")
    _remove(disk, log_dir, made, may_block)


def _moves(disk: Disk, directory: str, place: str) -> bool:
    """Move it; False where that stays where it is. Behind a slash a link is no directory."""
    try:
        disk.rename(f"{directory}/", place)
    except OSError as error:
        if error.errno not in _NOT_MOVED:
            raise
        logger.warning("After its disk had failed, %s is not made anew: %s", directory, error)
        return False
    return True


def _bring_home(disk: Disk, log_dir: str, made: str, is_kept: IsKept, may_block: MayBlock) -> None:
    """What an attempt has on its way, in which a partition's files may lie in both of its directories."""
    for place in (f"{made}/{_OLD}", f"{made}/{_NEW}"):
        if not disk.exists(place):
            continue
        for name in filter(is_kept, directories_in(disk, place, may_block)):
            left, home = f"{place}/{name}", f"{log_dir}/{name}"
            if not disk.exists(home):
                disk.rename(left, home)
                continue
            moved = [file for file in disk.list(left, may_block) if not disk.exists(f"{home}/{file}")]
            for file in moved:
                disk.rename(f"{left}/{file}", f"{home}/{file}")
            if moved:  # as a rule an earlier attempt's directory is empty
                disk.sync_dir(home, may_block)


def _remove(disk: Disk, log_dir: str, made: str, may_block: MayBlock) -> None:
    """Once what came from there is durable. What else lies there is not ours."""
    disk.sync_dir(log_dir, may_block)
    for place in (f"{made}/{_OLD}", f"{made}/{_NEW}"):
        if disk.exists(place):
            disk.remove_tree(place, may_block)
    if disk.exists(made) and not disk.list(made, may_block):
        disk.remove_tree(made, may_block)
    disk.sync_dir(log_dir, may_block)
