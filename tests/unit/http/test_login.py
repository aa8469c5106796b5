"""Logins over HTTP: the users of PLAIN and of SCRAM, and nobody else."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.scram_users import ScramUsers
from kraft.http.login import ANONYMOUS, LoginRequired, Logins, Visitor
from kraft.net.sasl import LoginRules
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.security.scram import ScramMechanism, derive, salted

SALT = b"salt of the sea"
OPEN: dict[str, LoginRules] = {}
CLOSED = {"SASL": LoginRules(("PLAIN", "SCRAM-SHA-256"), {"paul": "plain-secret"})}


def scram_user(name: str, password: str) -> UserScramCredentialRecord:
    sha_512 = ScramMechanism.SHA_512
    return derive(name, sha_512, salted(sha_512, password, SALT, 4096), SALT, 4096)


def scram_users(password: str = "scram-secret") -> ScramUsers:
    return ScramUsers([scram_user("sara", password)])


class Node:
    """What `Logins` needs of a node; counts how often a password was checked at length."""

    def __init__(self, logins: dict[str, LoginRules]) -> None:
        self.random = random.Random(1)
        self.logins = logins
        self.scram_users = scram_users()
        self.authorizer = None
        self.checks = 0

    def computing(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        self.checks += 1
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(work())
        return done


def visit(logins: Logins, authorization: str | None) -> Visitor:
    headers = {} if authorization is None else {"Authorization": authorization}
    request: Any = SimpleNamespace(headers=headers, remote="10.0.0.1")
    return asyncio.run(logins.visitor(request))


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_without_logins_everybody_is_anonymous() -> None:
    node: Any = Node(OPEN)
    assert visit(Logins(node), None).principal == ANONYMOUS
    assert visit(Logins(node), basic("sara", "whatever")).principal == ANONYMOUS


@pytest.mark.parametrize(("name", "password"), [("paul", "plain-secret"), ("sara", "scram-secret")])
def test_the_users_of_the_cluster_are_let_in(name: str, password: str) -> None:
    node: Any = Node(CLOSED)
    visitor = visit(Logins(node), basic(name, password))
    assert (visitor.principal, visitor.host) == (f"User:{name}", "10.0.0.1")


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic c2FyYTpz\xe9",
        "Basic \udcff",
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        "Basic " + base64.b64encode(b"sara").decode(),
        "Bearer scram-secret",
        basic("", "scram-secret"),
        basic("sara", ""),
        basic("sara", "plain-secret"),
        basic("paul", "scram-secret"),
        basic("paul", ""),
        basic("stranger", "scram-secret"),
    ],
)
def test_nobody_else_is(authorization: str | None) -> None:
    node: Any = Node(CLOSED)
    with pytest.raises(LoginRequired):
        visit(Logins(node), authorization)


def test_a_password_is_remembered_and_a_wrong_one_never() -> None:
    node: Any = Node(CLOSED)
    logins = Logins(node)
    for _ in range(3):
        visit(logins, basic("sara", "scram-secret"))
    assert node.checks == 1
    for _ in range(2):
        with pytest.raises(LoginRequired):
            visit(logins, basic("sara", "wrong"))
    assert node.checks == 3
    visit(logins, basic("paul", "plain-secret"))
    assert node.checks == 3, "a password of PLAIN takes no time"


@pytest.mark.parametrize("now", [scram_users("another"), ScramUsers([])], ids=["changed", "deleted"])
def test_a_password_that_is_changed_or_deleted_ends_at_once(now: ScramUsers) -> None:
    node: Any = Node(CLOSED)
    logins = Logins(node)
    visitor = visit(logins, basic("sara", "scram-secret"))
    assert visitor.is_logged_in
    node.scram_users = now
    assert not visitor.is_logged_in, "nor does a stream of events go on"
    with pytest.raises(LoginRequired):
        visit(logins, basic("sara", "scram-secret"))


@pytest.mark.parametrize(("name", "password"), [("sara", "x\0pw"), ("sara\0", "x\0pw"), ("sara\0x\0", "pw")])
def test_one_users_password_lets_in_nobody_of_another_name(name: str, password: str) -> None:
    """However the two are cut: a user whose name or password has a NUL in it."""
    node: Any = Node(CLOSED)
    node.scram_users = ScramUsers([scram_user("sara", "scram-secret"), scram_user("sara\0x", "pw")])
    logins = Logins(node)
    assert visit(logins, basic("sara\0x", "pw")).principal == "User:sara\0x"
    with pytest.raises(LoginRequired):
        visit(logins, basic(name, password))


def test_nor_does_one_that_is_changed_while_it_is_checked_let_anybody_in() -> None:
    class ChangingNode(Node):
        async def computing(self, work: Callable[[], Any]) -> Any:
            self.scram_users = scram_users("another")
            return await super().computing(work)

    node: Any = ChangingNode(CLOSED)
    with pytest.raises(LoginRequired):
        visit(Logins(node), basic("sara", "scram-secret"))


class SlowNode(Node):
    """Whose executor takes a while."""

    at_once = 0
    most_at_once = 0

    async def computing(self, work: Callable[[], Any]) -> Any:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return await super().computing(work)


def test_who_guesses_passwords_keeps_one_thread_busy() -> None:
    node: Any = SlowNode(CLOSED)
    logins = Logins(node)

    async def guess() -> None:
        guesses: list[Any] = [
            SimpleNamespace(headers={"Authorization": basic("sara", f"wrong-{n}")}, remote="10.0.0.1")
            for n in range(5)
        ]
        outcomes = await asyncio.gather(*map(logins.visitor, guesses), return_exceptions=True)
        assert all(isinstance(each, LoginRequired) for each in outcomes)

    asyncio.run(guess())
    assert (node.checks, node.most_at_once) == (5, 1)
