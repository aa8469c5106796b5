"""Runs of a local cluster: each is one command's, which starts its nodes and watches them.

kraft up -> LocalCluster.create: cluster.json names the run -> its nodes are started, if it still does
kraft down -> CALLED_OFF in its place: no command starts nodes for that run any more -> they are ended
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kraft.local.layout import command
from metadata_quorum.foundation.errors import ExitCode, FatalError

CALLED_OFF: Final = "down"
"""In the place of a run's name."""


def refuse_other(run: str, noted: str, directory: Path) -> None:
    """Raises FatalError where another one is written down."""
    if noted == run:
        return
    stopped = f"`{command('down', directory)}` has stopped it before all of it was started"
    taken_up = f"another command has taken up {directory} meanwhile, and starts it"
    raise FatalError(ExitCode.REFUSED, stopped if noted == CALLED_OFF else taken_up)
