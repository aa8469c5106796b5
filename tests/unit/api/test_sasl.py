"""Logins as the handlers see them, in virtual time: what refusal costs, how long a login holds."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.sasl import handle_authenticate, handle_handshake
from kraft.broker.scram_users import ScramUsers
from kraft.net.connection_security import Login, ScramClient
from kraft.net.peer import Peer
from kraft.net.sasl import LoginRules
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.security.scram import BY_SASL_NAME, derive, salted
from tests.support.virtual_loop import VirtualLoop

pytestmark = pytest.mark.row("U4")

DELAY_S = 0.75
LIFETIME_MS = 60_000
ANNA, BERT = Login("SCRAM-SHA-256", "anna", "annas"), Login("PLAIN", "bert", "berts")


class Connection:
    """To a node that knows anna by SCRAM-SHA-256 and bert by PLAIN."""

    def __init__(self, loop: VirtualLoop, lifetime_ms: int = 0) -> None:
        self.loop = loop
        sha_256 = BY_SASL_NAME["SCRAM-SHA-256"]
        anna = derive("anna", sha_256, salted(sha_256, "annas", b"salt", 4096), b"salt", 4096)
        rules = self.rules = LoginRules(("PLAIN", "SCRAM-SHA-256"), {"bert": "berts"}, DELAY_S, lifetime_ms)
        self.node: Any = SimpleNamespace(
            loop=self.loop,
            random=random.Random(1),
            logins={"IN": rules},
            scram_users=ScramUsers([anna]),
        )
        self.peer = Peer("IN", "127.0.0.1", 1, authenticated=False)

    def log_in(self, login: Login) -> dict[str, Any]:
        """The last answer. Raises `BrokerError`."""
        ctx: Any = SimpleNamespace(version=2, connection=self.peer)
        node: NodeContext = self.node
        request: RequestContext = ctx
        said: Any = SimpleNamespace(mechanism=login.mechanism)
        assert dict(handle_handshake(node, request, said))["error_code"] == 0  # type: ignore[arg-type]

        def tell(message: bytes) -> dict[str, Any]:
            sent: Any = SimpleNamespace(auth_bytes=message)
            return dict(self.loop.run_until_complete(handle_authenticate(node, request, sent)))

        if login.mechanism == "PLAIN":
            return tell(f"\0{login.username}\0{login.password}".encode())
        client = ScramClient(login, nonce="theirs")
        challenge = tell(client.first_message())["auth_bytes"]
        answer = tell(client.answer(challenge))
        client.check(answer["auth_bytes"])
        return answer

    def pass_time(self, ms: int) -> None:
        done = self.loop.create_future()
        self.loop.call_later(ms / 1000, done.set_result, None)
        self.loop.run_until_complete(done)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    with contextlib.closing(VirtualLoop()) as loop:
        yield loop


@pytest.mark.parametrize("login", [ANNA, BERT])
def test_a_login_that_holds_for_good(loop: VirtualLoop, login: Login) -> None:
    connection = Connection(loop)
    assert connection.log_in(login)["session_lifetime_ms"] == 0
    assert connection.peer.principal == f"User:{login.username}"
    connection.pass_time(100 * LIFETIME_MS)
    assert connection.peer.authenticated


@pytest.mark.parametrize(
    "wrong",
    [
        Login("SCRAM-SHA-256", "anna", "guessed"),
        Login("SCRAM-SHA-256", "nobody", "annas"),
        Login("PLAIN", "bert", "guessed"),
        Login("PLAIN", "nobody", "berts"),
    ],
)
def test_refusals_cost_the_same_time_and_tell_the_same(loop: VirtualLoop, wrong: Login) -> None:
    connection = Connection(loop)
    began = connection.loop.time()
    with pytest.raises(BrokerError) as refused:
        connection.log_in(wrong)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert connection.loop.time() - began == DELAY_S
    nobody = Connection(loop)
    with pytest.raises(BrokerError) as unknown:
        nobody.log_in(Login(wrong.mechanism, "whoever", "whatever"))
    assert refused.value.message == unknown.value.message
    assert not connection.peer.authenticated


def test_a_login_must_be_renewed_in_time(loop: VirtualLoop) -> None:
    connection = Connection(loop, LIFETIME_MS)
    for _ in range(3):
        assert connection.log_in(ANNA)["session_lifetime_ms"] == LIFETIME_MS
        connection.pass_time(LIFETIME_MS - 1)
        assert connection.peer.authenticated
    connection.pass_time(1)
    assert not connection.peer.authenticated
    for call_off in connection.peer.parked.values():
        call_off()


def test_nobody_becomes_somebody_else(loop: VirtualLoop) -> None:
    connection = Connection(loop, LIFETIME_MS)
    connection.log_in(ANNA)
    with pytest.raises(BrokerError) as refused:
        connection.log_in(BERT)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not connection.peer.authenticated


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login_that_is_renewed_is_as_short_as_the_first_one(loop: VirtualLoop, mechanism: str) -> None:
    """By then the client may send frames of a hundred megabytes."""
    connection = Connection(loop, LIFETIME_MS)
    connection.log_in(BERT)
    with pytest.raises(BrokerError, match="longer than allowed"):
        connection.log_in(Login(mechanism, "b" * connection.rules.max_message_bytes, "berts"))
    assert not connection.peer.authenticated
