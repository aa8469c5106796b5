"""A change of a log that stops half-way.

What a log knows lies in several places: the segment, its indexes, the epochs, the producers, the end
offset. A fault between two of them would leave a log that goes on with half of a change, and gives an
offset twice. So whatever stops a change that has begun leaves the log in doubt: it refuses all further
changes, and the next load tells from its files what it holds.

Beside the way of the data: log -> here -> partition, which goes offline.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from metadata_quorum.foundation.disk import is_of_disk
from metadata_quorum.foundation.supervision import ends_node


class LogInDoubtError(Exception):
    """Memory and files of the log may say different things. Its cause is what stopped the change."""


class Doubtful(Protocol):
    directory: str
    in_doubt: bool


Subject = TypeVar("Subject", bound=Doubtful)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def doubt(log: Doubtful, error: Exception) -> Exception:
    """What to raise instead of `error`, which has stopped a change half-way."""
    log.in_doubt = True
    if isinstance(error, LogInDoubtError) or ends_node(error):
        return error
    made = LogInDoubtError(f"a change of {log.directory} has stopped half-way: {error}")
    made.__cause__ = error
    return made


def disk_failure(error: OSError | LogInDoubtError) -> OSError | None:
    """The disk's own error, where it was the disk that has stopped the change."""
    cause = error.__cause__ if isinstance(error, LogInDoubtError) else error
    return cause if isinstance(cause, OSError) and is_of_disk(cause) else None


def check_certain(log: Doubtful) -> None:
    """Raises LogInDoubtError where an earlier change has stopped half-way."""
    if log.in_doubt:
        raise LogInDoubtError(f"an earlier change of {log.directory} has stopped half-way")


def whole(
    change: Callable[Concatenate[Subject, Arguments], Result],
) -> Callable[Concatenate[Subject, Arguments], Result]:
    """For a method that changes a log: what stops it leaves the log in doubt."""

    @functools.wraps(change)
    def checked(log: Subject, *args: Arguments.args, **more: Arguments.kwargs) -> Result:
        check_certain(log)
        try:
            return change(log, *args, **more)
        except Exception as error:  # noqa: BLE001
            raise doubt(log, error)  # noqa: B904 - it has its cause

    return cast(Callable[Concatenate[Subject, Arguments], Result], checked)
