"""JSON of megabytes does not keep the interpreter to itself."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kraft.wire import long_json

pytestmark = pytest.mark.row("U5")

ITEMS = 1000
DOCUMENT: dict[str, Any] = {
    "node_id": 1,
    "none": None,
    "state": 'run"ning\né',
    "empty": [],
    "faults": {"cleaner": 2},
    "replicas": [{"topic": f"t{n}", "followers": {2: {"end": n}}, "isr": [1, 2]} for n in range(ITEMS)],
    "groups": [{"id": f"g{n}", "offsets": [["t", 0, n]]} for n in range(ITEMS)],
}


def test_it_is_the_json_that_others_make_and_read() -> None:
    text = json.dumps(DOCUMENT).encode()
    assert long_json.encode(DOCUMENT) == text
    assert long_json.decode(text) == json.loads(text)


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": [1, }', b"\xff{}"])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        long_json.decode(text)


@pytest.mark.parametrize(
    "work",
    [lambda: long_json.encode(DOCUMENT), lambda: long_json.decode(json.dumps(DOCUMENT).encode())],
    ids=["encode", "decode"],
)
def test_python_code_begins_at_every_item(work: Callable[[], object]) -> None:
    """There another thread may go on."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    def profiled() -> None:
        sys.setprofile(count)
        work()

    thread = threading.Thread(target=profiled)
    thread.start()
    thread.join()
    assert calls >= 2 * ITEMS
