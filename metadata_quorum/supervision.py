"""Background work that nobody awaits: a node must not live on after some of it has died of an error.

A fetcher, a lifecycle, a link to a controller runs until it is cancelled. An error that escapes from one
would be kept in its task, and the node would look alive while it follows nobody. So the error is
told to the loop's exception handler, and the process's handler (kraft/serve.py) stops the node.

Lowest floor: used by every room that starts tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def supervised(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result], name: str
) -> asyncio.Task[Result]:
    """Run `work` in a task of its own; an error that escapes from it is told to the loop's handler,
    with the task under the key "task"."""
    task = loop.create_task(work, name=name)
    task.add_done_callback(_tell_error)
    return task


def _tell_error(task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        context = {"message": f"{task.get_name()} has died", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
