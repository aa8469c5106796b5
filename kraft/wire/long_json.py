"""JSON of megabytes, made and read in a thread: the interpreter lets the event loop run between two items.

`json.dumps` and `json.loads` of a whole document keep the interpreter to themselves for as long as they take.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")

_dumps = json.JSONEncoder().encode


def encode(document: Mapping[str, object]) -> bytes:
    """Its lists item by item."""
    members = (
        f"{_dumps(name)}: [{', '.join(map(_dumps, value))}]"
        if isinstance(value, list)
        else f"{_dumps(name)}: {_dumps(value)}"
        for name, value in document.items()
    )
    return f"{{{', '.join(members)}}}".encode()


def decode(text: bytes) -> Any:
    """Raises `ValueError`."""
    return json.loads(text, object_hook=_as_it_is)


def _as_it_is(value: ValueT) -> ValueT:
    """What the decoder calls for every object: where Python code begins, another thread may go on."""
    return value
