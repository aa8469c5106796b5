"""All controllers change their software, as docs/MIGRATION.md has it."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from tests.support.nodes.role_nodes import RoleNodes, Software

_STOP_PATIENCE_S: Final = 10


def change_quorum(nodes: RoleNodes, command: str, software: Software) -> None:
    """They stop, and run the other software with the properties that `nodes` has now. `command`: of `kraft
    storage`, export or import."""
    for each in nodes.controllers:
        try:
            nodes.stop(each, _STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:  # of Kafka's combined nodes the last one waits minutes for a quorum
            nodes.kill(each)
    _storage(nodes, command)
    for each in nodes.controllers:
        nodes.software[each] = software
        nodes.start(each)


def _storage(nodes: RoleNodes, command: str) -> None:
    configs = [word for each in nodes.controllers for word in ("-c", str(nodes.configure(each)))]
    arguments = [sys.executable, "-m", "kraft", "storage", command, *configs]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
