"""Commands that wait for an answer as long as tests do. For a person they give a silent node a second or two,
and then say so; on a busy machine, or one that stands still for a moment, that is what a node needs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from tests.support.waiting import PATIENCE_S

DEFINING: Final = ("kraft.cli.bootstrap", "kraft.cli.survey", "kraft.cli.notice", "kraft.cli.node_http")
"""What they define, others have copies of."""
SECONDS: Final = (
    "TIMEOUT_S",
    "AFTER_S",
    "CONTROLLER_S",
    "JOIN_S",
    "CONNECT_S",
    "SILENCE_S",
    "FIRST_ANSWER_S",
)


def be_patient(replace: Callable[[Any, str, float], None] = setattr) -> None:
    """Commands of this process are from now on."""
    for name in DEFINING:
        import_module(name)
    for name, module in sorted(sys.modules.items()):
        if name.startswith("kraft.cli."):
            for constant in SECONDS:
                if hasattr(module, constant):
                    replace(module, constant, PATIENCE_S)
