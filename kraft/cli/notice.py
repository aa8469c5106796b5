"""A command that has no result yet says after a moment what keeps it: which nodes are silent, whether the
metadata quorum has a leader that answers, which partitions have none.

    --bootstrap-server -> begin -> (AFTER_S later, on a thread of its own) survey.py -> standard error
                       -> begin_reading -> (beside the command, where no controller is reached) -> the same

All commands have it, by that option. Where nothing is missing, nothing is said: the command is merely slow,
or waits for messages. A command that shows what one broker knows has its result at once, however old that
broker's knowledge is: it says the same at its end, where that broker does not reach the active controller.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Final

import typer

from kraft.cli.bootstrap import checked

if TYPE_CHECKING:
    from kraft.cli.survey import Survey

AFTER_S: Final = 0.8
CONTROLLER_S: Final = 0.8
"""A broker that reaches the active controller has answered for it by then."""
JOIN_S: Final = 2.0
NAMED: Final = 8
"""At most this many partitions are named."""


def begin(ctx: typer.Context, bootstrap: str) -> str:
    """The option's callback. Raises UsageError where an address is none."""
    checked(ctx, bootstrap)
    if not ctx.resilient_parsing:
        # The context has the command's TLS and login: --command-config is read before other options.
        timer = threading.Timer(AFTER_S, copy_context().run, (_say, ctx, bootstrap))
        timer.daemon = True
        timer.start()
        ctx.call_on_close(timer.cancel)
    return bootstrap


def begin_reading(ctx: typer.Context, bootstrap: str) -> str:
    """The callback of the same option, of a command that shows what a broker knows."""
    begin(ctx, bootstrap)
    if not ctx.resilient_parsing:
        beside = threading.Thread(target=copy_context().run, args=(_say_how_old, bootstrap), daemon=True)
        beside.start()
        ctx.call_on_close(partial(beside.join, JOIN_S))
    return bootstrap


def _say_how_old(bootstrap: str) -> None:
    from kraft.cli.errors import say
    from kraft.cli.survey import reach_the_controller, survey

    if reach_the_controller(bootstrap, CONTROLLER_S):
        return
    found = survey(bootstrap)
    for line in missing(found) if found.metadata else ():  # where nobody answers, the command says it
        say(line)
    if found.quorum is None and found.metadata and not found.quorum_is_hidden:
        say(f"shown is what {' and '.join(map(found.name_of, found.brokers()))} knew last")


def _say(ctx: typer.Context, bootstrap: str) -> None:
    from kraft.cli.errors import CliError, say
    from kraft.cli.survey import survey

    try:
        for line in missing(survey(bootstrap), ctx.params.get("topic")):
            say(line)
    except CliError:
        return  # the command says it


def missing(found: Survey, topic: str | None = None) -> Iterator[str]:
    """Sentences about what is not there; none for a cluster that is whole. `topic`: its partitions first."""
    for address, why in found.silent.items():
        yield f"{found.name_of(address)} {why}"
    for address in found.cut_off if found.quorum is not None else ():
        yield f"{found.name_of(address)} answers, but does not reach the active controller"
    if found.quorum is None and found.metadata and not found.quorum_is_hidden:
        yield "the metadata quorum has no leader that answers"
        for each in found.controllers:
            yield f"controller {each.node_id} ({each.address}) {each}"
    leaderless = [str(e) for e in sorted(found.without_leader(), key=lambda each: each.topic != topic)]
    if leaderless:
        more = f" and {len(leaderless) - NAMED} more" if len(leaderless) > NAMED else ""
        yield f"no leader that answers: {', '.join(leaderless[:NAMED])}{more}"
