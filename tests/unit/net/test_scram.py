"""SCRAM, the server's end, against our client's end and the example of the RFC; and what it refuses."""

from __future__ import annotations

import base64
import random
import re
import tracemalloc
from contextlib import suppress

import pytest

from kraft.broker.scram_users import ScramUsers
from kraft.net.connection_security import AuthenticationFailed, Login, ScramClient
from kraft.net.scram import ScramExchange
from kraft.storage.bootstrap import parse_user
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE
from metadata_quorum.metadata.records import FeatureLevelRecord, UserScramCredentialRecord
from metadata_quorum.security.scram import Decoys, ScramMechanism, decoy_secret_record, derive, salted

pytestmark = pytest.mark.row("U4")

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def credential(user: str, password: str, mechanism: ScramMechanism) -> UserScramCredentialRecord:
    return derive(user, mechanism, salted(mechanism, password, SALT, 4096), SALT, 4096)


def exchange(
    *known: UserScramCredentialRecord, mechanism: ScramMechanism = ScramMechanism.SHA_256, nonce: str = "ours"
) -> ScramExchange:
    by_name = {(each.name, each.mechanism): each for each in known}
    decoys = Decoys(b"secret", known)
    return ScramExchange(mechanism, lambda user, kind: by_name.get((user, int(kind))), nonce, decoys.of)


def test_the_exchange_of_the_rfc() -> None:
    server = exchange(
        credential("user", "pencil", ScramMechanism.SHA_256), nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    assert server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    verdict = server.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert verdict == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("user", ["anna", "a=b,c", "ümlaut"])
def test_our_two_ends_agree(mechanism: ScramMechanism, user: str) -> None:
    server = exchange(credential(user, "her, = secret", mechanism), mechanism=mechanism)
    client = ScramClient(Login(mechanism.sasl_name, user, "her, = secret"), nonce="theirs")
    client.check(server.step(client.answer(server.step(client.first_message()))))
    assert server.user == user


def refusal(server: ScramExchange, login: Login) -> str:
    client = ScramClient(login, nonce="theirs")
    answer = client.answer(server.step(client.first_message()))
    with pytest.raises(AuthenticationFailed) as refused:
        server.step(answer)
    assert server.user is None
    return str(refused.value)


def test_an_unknown_user_is_refused_like_a_wrong_password() -> None:
    anna = credential("anna", "right", ScramMechanism.SHA_256)
    wrong = refusal(exchange(anna), Login("SCRAM-SHA-256", "anna", "wrong"))
    assert refusal(exchange(anna), Login("SCRAM-SHA-256", "bert", "right")) == wrong


def test_nobodys_salt_stays_the_same() -> None:
    first, again, other = (exchange().step(f"n,,n={name},r=x".encode()) for name in ("bert", "bert", "carl"))
    assert first == again != other
    assert re.fullmatch(rb"r=xours,s=[^,]+,i=4096", first)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=" + b"a" * 500_000 + b",r=x",
        b"n,,n=" + b"=2C" * 170_000 + b"=,r=x",
        b"n,,n=anna,r=x" + b",m=x" * 120_000 + b",",
    ],
)
def test_a_long_message_costs_its_length_once(message: bytes) -> None:
    tracemalloc.start()
    try:
        with suppress(AuthenticationFailed):
            exchange().step(message)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(message)
    finally:
        tracemalloc.stop()


def test_a_delegation_token_is_nobody() -> None:
    anna = credential("anna", "right", ScramMechanism.SHA_256)
    plain = exchange(anna).step(b"n,,n=anna,r=x,more=fields")
    assert exchange(anna).step(b"n,,n=anna,r=x,tokenauth=true") != plain
    assert base64.b64encode(SALT) in plain


@pytest.mark.parametrize(
    "message",
    [b"", b"\xff", b"n,,n=,r=x", b"n,,n=anna", b"p=tls-unique,,n=anna,r=x", b"n,a=bert,n=anna,r=x",
     b"n,,n=an=41na,r=x", b"n,,r=x,n=anna", b"n,,m=new,n=anna,r=x"],
)  # fmt: skip
def test_first_messages_that_are_none(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        exchange(credential("anna", "right", ScramMechanism.SHA_256)).step(message)


@pytest.mark.parametrize(
    "message",
    [b"", b"c=biws,r=xours", b"c=biws,r=x,p=AAAA", b"c=biws,r=xours,p=?", b"c=biws,r=xours,p=AAAA",
     b"c=eSws,r=xours,p=" + base64.b64encode(bytes(32))],
)  # fmt: skip
def test_last_messages_that_prove_nothing(message: bytes) -> None:
    server = exchange(credential("anna", "right", ScramMechanism.SHA_256))
    server.step(b"n,,n=anna,r=x")
    with pytest.raises(AuthenticationFailed):
        server.step(message)
    assert server.user is None


def test_a_user_of_the_format_command() -> None:
    made = parse_user('SCRAM-SHA-512=[name=anna,password="a,b",iterations=8192]', random.Random(1))
    assert (made.name, made.mechanism, made.iterations) == ("anna", 2, 8192)
    assert made == derive(
        "anna",
        ScramMechanism.SHA_512,
        salted(ScramMechanism.SHA_512, "a,b", made.salt, 8192),
        made.salt,
        8192,
    )


def test_a_user_by_salt_and_salted_password() -> None:
    salt, hashed = base64.b64encode(SALT).decode(), salted(ScramMechanism.SHA_256, "right", SALT, 4096)
    text = f'SCRAM-SHA-256=[name=anna,salt="{salt}",saltedpassword="{base64.b64encode(hashed).decode()}"]'
    assert parse_user(text, random.Random(1)) == credential("anna", "right", ScramMechanism.SHA_256)


@pytest.mark.parametrize(
    "argument",
    [
        "",
        "PLAIN=[name=a,password=b]",
        "SCRAM-SHA-256=[]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[password=b]",
        "SCRAM-SHA-256=[name=a,password=b,iterations=1]",
        "SCRAM-SHA-256=[name=a,password=b,iterations=99999]",
        "SCRAM-SHA-256=[name=a,password=b,saltedpassword=Yg==,salt=Yg==]",
        "SCRAM-SHA-256=[name=a,saltedpassword=Yg==]",
        "SCRAM-SHA-256=[name=a,password=hidden,salt=?]",
        "SCRAM-SHA-256=[name=a,name=b,password=c]",
        "SCRAM-SHA-256=[name=a,colour=b]",
    ],
)
def test_users_that_are_refused_without_telling_the_password(argument: str) -> None:
    with pytest.raises(FatalError) as refused:
        parse_user(argument, random.Random(1))
    assert "hidden" not in str(refused.value)


def test_strangers_look_like_users_to_every_broker_and_after_every_restart() -> None:
    """Neither iterations nor salts nor two brokers' answers nor a restart tells who exists."""
    kinds = ((4096, b"0123456789abcdefghijklmnop"), (8192, bytes(range(32))))
    users = [
        derive(f"user-{n}", ScramMechanism.SHA_256, b"p" * 32, salt, iterations)
        for n, (iterations, salt) in enumerate(kinds)
    ]
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(FeatureLevelRecord(name="metadata.version", feature_level=27))
    delta.replay(decoy_secret_record("a secret of the cluster"))
    for user in users:
        delta.replay(user)
    image = delta.apply()
    brokers = [ScramUsers(bootstrap) for bootstrap in ([], users, users[:1])]
    for broker in brokers:
        broker.take(delta, image)
    seen = set()
    for n in range(40):
        answers = [broker.decoy(f"stranger-{n}", ScramMechanism.SHA_256) for broker in brokers]
        assert answers[1:] == answers[:-1]
        seen.add((answers[0].iterations, len(answers[0].salt), answers[0].salt.isalnum()))
    assert seen == {(4096, 26, True), (8192, 32, False)}
    # A user of the same kind comes, and changes no stranger.
    more = MetadataDelta(image)
    more.replay(derive("late", ScramMechanism.SHA_256, b"p" * 32, bytes(range(32)), 8192))
    brokers[0].take(more, more.apply())
    for n in range(40):
        before, after = (each.decoy(f"stranger-{n}", ScramMechanism.SHA_256) for each in brokers[:2])
        assert before == after


def test_before_the_first_metadata_a_restart_proves_nothing() -> None:
    users = [derive("user", ScramMechanism.SHA_512, b"p" * 64, b"s" * 26, 5000)]
    first, second = (ScramUsers(users).decoy("stranger", ScramMechanism.SHA_512) for _ in range(2))
    assert first == second
    assert first.iterations == 5000
