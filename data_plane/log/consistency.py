"""A change of a log that stops half-way.

The state of a log is in several places: the segment, its indexes, the epochs, the producers, the end
offset. A fault between two of them would leave a log that continues with half of a change, and assigns an
offset twice. So a change that fails after it started marks the log as inconsistent: it refuses all further
changes, and the next load finds out from its files what it holds.

Off the path of the data: log -> here -> partition, which goes offline.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from metadata_quorum.foundation.disk import is_of_disk
from metadata_quorum.foundation.supervision import ends_node


class InconsistentLogError(Exception):
    """Memory and files of the log may differ. Its cause is what stopped the change."""


class MayBeInconsistent(Protocol):
    directory: str
    inconsistent: bool


Subject = TypeVar("Subject", bound=MayBeInconsistent)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def mark_inconsistent(log: MayBeInconsistent, error: Exception) -> Exception:
    """What to raise instead of `error`, which has stopped a change half-way."""
    log.inconsistent = True
    if isinstance(error, InconsistentLogError) or ends_node(error):
        return error
    made = InconsistentLogError(f"a change of {log.directory} has stopped half-way: {error}")
    made.__cause__ = error
    return made


def disk_failure(error: Exception) -> OSError | None:
    """The disk's own error, where it was the disk that has stopped the change."""
    cause = error.__cause__ if isinstance(error, InconsistentLogError) else error
    return cause if isinstance(cause, OSError) and is_of_disk(cause) else None


def check_consistent(log: MayBeInconsistent) -> None:
    """Raises InconsistentLogError where an earlier change has stopped half-way."""
    if log.inconsistent:
        raise InconsistentLogError(f"an earlier change of {log.directory} has stopped half-way")


def all_or_inconsistent(
    change: Callable[Concatenate[Subject, Arguments], Result],
) -> Callable[Concatenate[Subject, Arguments], Result]:
    """For a method that changes a log: an exception in it marks the log as inconsistent."""

    @functools.wraps(change)
    def checked(log: Subject, *args: Arguments.args, **more: Arguments.kwargs) -> Result:
        check_consistent(log)
        try:
            return change(log, *args, **more)
        except Exception as error:  # noqa: BLE001
            raise mark_inconsistent(log, error)  # noqa: B904 - it has its cause

    return cast(Callable[Concatenate[Subject, Arguments], Result], checked)
