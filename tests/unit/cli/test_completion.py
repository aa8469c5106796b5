"""Names for the shell, of a cluster in which anybody may make a group."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kraft.cli import completion
from kraft.peers import blocking_client


def test_only_words_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = [
        "$(reboot)",
        "a`reboot`",
        "a;reboot",
        "a|b",
        "a b",
        "a\nb",
        "--execute",
        "~root",
        "a*",
        "a\\",
        'a"b',
    ]
    words = ["a", "a.b-c_d", "orders:1", "spark/7@x"]
    groups = [SimpleNamespace(group_id=each) for each in (*hostile, *words)]
    answer = SimpleNamespace(brokers=[SimpleNamespace(host="here", port=9)], groups=groups)
    monkeypatch.setattr(blocking_client, "ask", lambda *_, timeout_s: answer)
    assert completion.groups("") == sorted(words)
    assert completion.groups("a.") == ["a.b-c_d"]
