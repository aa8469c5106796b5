"""What the console may change, and for whom: the page's own requests only."""

from __future__ import annotations

import asyncio
import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.http.faults import arguments
from kraft.http.login import Visitor
from kraft.http.refused import Refused
from kraft.http.writes import MAX_BODY_BYTES, TOKEN_HEADER, Writes

HOST = "127.0.0.1:9292"


def writes(*, allowed: bool = True) -> Writes:
    node: Any = SimpleNamespace(random=random.Random(1), config=SimpleNamespace(kraft_http_writes=allowed))
    return Writes(node)


def visitor(name: str = "ann") -> Visitor:
    node: Any = None
    return Visitor(f"User:{name}", "127.0.0.1", node)


def own_page(token: str) -> dict[str, str]:
    return {"Host": HOST, "Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin", TOKEN_HEADER: token}


def body(of: Writes, headers: dict[str, str], content: bytes = b"{}", kind: str = "application/json") -> Any:
    async def read() -> bytes:
        return content

    request: Any = SimpleNamespace(headers=headers, content_type=kind, content_length=len(content), read=read)
    return asyncio.run(of.body(request, visitor()))


def refusal(
    of: Writes, headers: dict[str, str], content: bytes = b"{}", kind: str = "application/json"
) -> int:
    with pytest.raises(Refused) as refused:
        body(of, headers, content, kind)
    return refused.value.status


def test_the_own_page_may() -> None:
    own = writes()
    assert body(own, own_page(own.token(visitor())), b'{"a": 1}') == {"a": 1}


def test_where_nothing_may_be_written_nobody_may() -> None:
    own = writes(allowed=False)
    assert refusal(own, own_page(own.token(visitor()))) == 405


@pytest.mark.parametrize(
    "changed",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://{HOST}"},
        {"Origin": "http://127.0.0.1:8080"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {TOKEN_HEADER: ""},
        {TOKEN_HEADER: "guessed"},
        {TOKEN_HEADER: "\xe4"},
        {TOKEN_HEADER: "\udcff"},  # as a byte of a header comes that is no UTF-8
    ],
)
def test_no_other_site_may(changed: dict[str, str]) -> None:
    own = writes()
    assert refusal(own, own_page(own.token(visitor())) | changed) == 403


@pytest.mark.parametrize("left_out", ["Origin", TOKEN_HEADER])
def test_what_a_browser_or_the_page_sends_must_be_there(left_out: str) -> None:
    own = writes()
    headers = own_page(own.token(visitor()))
    del headers[left_out]
    assert refusal(own, headers) == 403


def test_a_token_is_one_principals_and_one_processs() -> None:
    own = writes()
    assert refusal(own, own_page(own.token(visitor("bob")))) == 403
    other: Any = SimpleNamespace(random=random.Random(2), config=SimpleNamespace(kraft_http_writes=True))
    assert refusal(own, own_page(Writes(other).token(visitor()))) == 403


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/x-www-form-urlencoded", 415),
        (b"{}", "text/plain", 415),
        (b"{", "application/json", 400),
        (b"[" * 60_000, "application/json", 400),
        (b"[]", "application/json", 400),
        (b"\xff", "application/json", 400),
        (json.dumps("v" * MAX_BODY_BYTES).encode(), "application/json", 413),
    ],
)
def test_other_bodies_are_refused(content: bytes, kind: str, status: int) -> None:
    own = writes()
    assert refusal(own, own_page(own.token(visitor())), content, kind) == status


def test_a_compressed_body_is_not_opened() -> None:
    own = writes()
    assert refusal(own, own_page(own.token(visitor())) | {"Content-Encoding": "gzip"}) == 415


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.http.writes.BODY_S", 0.01)
    own = writes()
    headers = own_page(own.token(visitor()))
    request: Any = SimpleNamespace(
        headers=headers, content_type="application/json", content_length=2, read=asyncio.Event().wait
    )
    with pytest.raises(Refused) as refused:
        asyncio.run(own.body(request, visitor()))
    assert refused.value.status == 408


@pytest.mark.parametrize(
    ("wanted", "command"),
    [
        ({"action": "cut", "link": "2>1"}, "chaos link cut 2>1"),
        ({"action": "slow", "link": "2-3"}, "chaos link slow 2-3 200ms"),
        ({"action": "heal", "link": "2>1"}, "chaos link heal 2>1"),
        ({"action": "heal"}, "chaos link heal"),
        ({"action": "list"}, "chaos link list"),
        ({"action": "kill", "node": 2}, "node kill 2"),
        ({"action": "start", "node": 3}, "node start 3"),
    ],
)
def test_faults_are_commands(wanted: dict[str, Any], command: str) -> None:
    assert " ".join(arguments(wanted, own_id=1)) == command


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({}, 400),
        ({"action": ["cut"]}, 400),
        ({"action": "down"}, 400),
        ({"action": "cut"}, 400),
        ({"action": "cut", "link": "--dir=/"}, 400),
        ({"action": "cut", "link": "2>1 --help"}, 400),
        ({"action": "cut", "link": "2>1\n"}, 400),
        ({"action": "cut", "link": "\u0662>1"}, 400),
        ({"action": "kill", "node": "2"}, 400),
        ({"action": "kill", "node": True}, 400),
        ({"action": "kill", "node": -1}, 400),
        ({"action": "pause", "node": 1}, 409),
    ],
)
def test_nothing_else_becomes_a_command(wanted: dict[str, Any], status: int) -> None:
    with pytest.raises(Refused) as refused:
        arguments(wanted, own_id=1)
    assert refused.value.status == status
