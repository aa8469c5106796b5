"""Keys of TLS and SASL: what they become, and what stops the start."""

from __future__ import annotations

import shutil
import ssl
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from kraft.config.jaas import parse_jaas
from kraft.config.node_config import ROWS
from kraft.local.certificates import Authority
from kraft.net.connection_security import PLAINTEXT, AuthenticationFailed, Login
from kraft.net.listener import OPEN
from kraft.net.renewable_tls import RenewableTls
from kraft.net.sasl import PlainExchange
from kraft.node.listener_security import NodeSecurity
from kraft.node.principal_mapping import parse_rules, principal_of
from kraft.node.settings import server_limits
from metadata_quorum.foundation.errors import FatalError
from tests.support.certificates import COMMON_NAME, COUNTRY, ORGANIZATION, PRINTABLE, UTF8, certificate
from tests.support.node_config import config, mapped

pytestmark = pytest.mark.row("U4")

ANNA = certificate(
    ((COUNTRY, PRINTABLE, b"NO"),), ((ORGANIZATION, UTF8, b"Kraft, Inc."),), ((COMMON_NAME, UTF8, b"Anna"),)
)


def test_plaintext_asks_for_nothing() -> None:
    security = NodeSecurity(config(listener_security_protocol_map=mapped("PLAINTEXT")))
    assert security.listeners == {"IN": OPEN, "CONTROLLER": OPEN}
    assert security.logins == {}
    assert security.to_brokers is PLAINTEXT
    assert security.to_controllers is PLAINTEXT


def test_how_much_a_client_may_say_before_its_login_and_of_each_later_one() -> None:
    limited = config(
        listener_security_protocol_map=mapped("SASL_PLAINTEXT"),
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        sasl_jaas_config='M required username="n" password="p" user_n="p";',
        sasl_server_max_receive_size="1000",
    )
    assert server_limits(limited, limited).connection.max_frame_bytes_before_login == 1000
    assert NodeSecurity(limited).logins["IN"].max_message_bytes == 1000


def test_a_listeners_own_key_beats_the_nodes() -> None:
    security = NodeSecurity(
        config(
            listener_security_protocol_map=mapped("SASL_PLAINTEXT"),
            sasl_enabled_mechanisms="PLAIN",
            sasl_mechanism_inter_broker_protocol="PLAIN",
            sasl_jaas_config='M required username="n" password="everywhere" user_a="x";',
            listener_name_in_plain_sasl_jaas_config=(
                'M required username="n" password="p" user_n="p" user_b="y";'
            ),
        )
    )
    assert security.logins["IN"].plain_users == {"n": "p", "b": "y"}
    assert security.to_brokers.login == Login("PLAIN", "n", "p")
    assert security.listeners["IN"].asks_login


@pytest.mark.parametrize(
    ("protocol", "more", "reason"),
    [
        ("SSL", {}, "ssl.keystore.location=: IN speaks TLS"),
        (
            "SSL",
            {"ssl_keystore_location": "missing.pem"},
            "ssl.keystore.location=missing.pem: cannot be read",
        ),
        ("SSL", {"listener_name_in_ssl_keystore_location": "x"}, "listener.name.in.ssl.keystore.location=x"),
        ("SASL_PLAINTEXT", {}, "sasl.enabled.mechanisms=: IN asks for a login"),
        (
            "SASL_PLAINTEXT",
            {"sasl_enabled_mechanisms": "PLAIN"},
            "sasl.mechanism.inter.broker.protocol=: IN asks",
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl_enabled_mechanisms": "PLAIN", "sasl_mechanism_inter_broker_protocol": "PLAIN"},
            "listener.name.in.plain.sasl.jaas.config: needs username",
        ),
    ],
)
def test_what_stops_the_start(protocol: str, more: dict[str, str], reason: str) -> None:
    with pytest.raises(FatalError) as stopped:
        NodeSecurity(config(listener_security_protocol_map=mapped(protocol), **more))
    assert reason in stopped.value.reason


def test_a_keystore_that_is_no_pem(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no key")
    with pytest.raises(FatalError, match="no PEM"):
        NodeSecurity(
            config(
                listener_security_protocol_map=mapped("SSL"), ssl_keystore_location=str(tmp_path / "store")
            )
        )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH")
def test_versions_of_tls(tmp_path: Path) -> None:
    """A key that nothing read: whoever allowed TLS 1.3 alone was spoken to in 1.2."""
    authority = Authority.create(tmp_path, "authority")
    keys = {
        "listener_security_protocol_map": mapped("SSL"),
        "ssl_keystore_location": str(authority.issue("node", "/CN=node")),
        "ssl_truststore_location": str(authority.certificate),
    }

    def versions(*ends: RenewableTls | None) -> set[tuple[int, int]]:
        return {(each.context.minimum_version, each.context.maximum_version) for each in ends if each}

    oldest, newest = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    for enabled, low, high in (
        ("TLSv1.3", newest, newest),
        ("TLSv1.2,TLSv1.1,TLSv1", oldest, oldest),
        ("TLSv1.3,TLSv1.2", oldest, newest),
    ):
        for key in ("ssl_enabled_protocols", "listener_name_in_ssl_enabled_protocols"):
            security = NodeSecurity(config(**keys, **{key: enabled}))
            assert versions(security.listeners["IN"].tls, security.to_brokers.tls) == {(low, high)}
    with pytest.raises(FatalError, match=r"ssl.enabled.protocols=TLSv1: one of TLSv1.2, TLSv1.3"):
        NodeSecurity(config(**keys, ssl_enabled_protocols="TLSv1"))


def test_jaas() -> None:
    text = 'a.b.Module required username=me password="a \\"quoted\\" = word; so" user_x="y" ;'
    assert parse_jaas(text) == {"username": "me", "password": 'a "quoted" = word; so', "user_x": "y"}


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", r"User:CN=Anna,O=Kraft\, Inc.,C=NO"),
        ("RULE:^CN=(.*?),.*$/$1/", "User:Anna"),
        ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "User:anna"),
        ("RULE:^CN=Bert.*$/b/,RULE:^CN=(.*?),.*C=(.*)$/$2-$1/U", "User:NO-ANNA"),
    ],
)
def test_rules_name_the_user(rules: str, principal: str) -> None:
    assert principal_of(ANNA, parse_rules(rules)) == principal


def test_a_certificate_that_no_rule_fits() -> None:
    with pytest.raises(ValueError, match="no rule"):
        principal_of(ANNA, parse_rules("RULE:^CN=Bert$/b/"))
    with pytest.raises(FatalError):
        parse_rules("RULE:half")


@pytest.mark.parametrize(
    "message", [b"\0anna\0wrong", b"\0bert\0right", b"\0bert\0", b"other\0anna\0right", b"anna", b"\xff\0\0"]
)
def test_plain_refuses(message: bytes) -> None:
    exchange = PlainExchange({"anna": "right"})
    with pytest.raises(AuthenticationFailed):
        exchange.step(message)
    assert exchange.user is None


def test_a_long_plain_message_costs_its_length() -> None:
    """Of half a megabyte, which is what may come before a login."""
    message = b"\0" * 500_000
    tracemalloc.start()
    try:
        with pytest.raises(AuthenticationFailed):
            PlainExchange({"anna": "right"}).step(message)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(message)
    finally:
        tracemalloc.stop()


def test_plain_accepts() -> None:
    exchange: Any = PlainExchange({"anna": "right"})
    assert exchange.step(b"\0anna\0right") == b""
    assert exchange.user == "anna"


def test_secrets_are_marked() -> None:
    assert {name for name, row in ROWS.items() if row.rule.secret} == {"ssl.key.password", "sasl.jaas.config"}
