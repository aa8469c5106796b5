"""Certificates that end: what is said of it before, and what is not taken when it is over."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from kraft.local.certificates import Authority
from kraft.net.renewable_tls import RenewableTls
from kraft.node.certificate_ends import CertificateWatch, day_of, end_of
from kraft.node.listener_security import NodeSecurity
from metadata_quorum.foundation.errors import FatalError
from tests.support.node_config import config
from tests.support.virtual_loop import run_virtually

pytestmark = [
    pytest.mark.row("U4"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH"),
]

DAY_S = 86_400
LONG = 20_000
"""Days: beyond 2049, from which on certificates have another type of time."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path, "authority")


def openssls(certificate: Path) -> int:
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", certificate],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(ssl.cert_time_to_seconds(said.stdout.strip().removeprefix("notAfter=")))


@pytest.mark.parametrize("days", [-1, 20, LONG])
def test_a_certificate_says_when_it_ends(authority: Authority, days: int) -> None:
    issued = authority.issue("node", "/CN=node", days=days)
    assert end_of(issued.read_text()) == openssls(issued)


def test_of_a_chain_it_is_the_first_end(authority: Authority) -> None:
    issued = authority.issue("node", "/CN=node", days=LONG)
    chain = issued.read_text() + authority.certificate.read_text()
    assert end_of(chain) == openssls(authority.certificate) < openssls(issued)


def test_of_what_is_no_certificate_nobody_can_tell() -> None:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    assert [end_of(each) for each in ("", begin, f"{begin}\nMAA=\n{end}\n", f"{begin}\n!\n{end}\n")] == [
        None
    ] * 4


def test_the_log_says_every_day_which_ones_end_soon(caplog: pytest.LogCaptureFixture) -> None:
    ends = {"LATER": 100 * DAY_S, "SOON": 30 * DAY_S - 1, "OVER": -1}

    async def run() -> None:
        loop = asyncio.get_running_loop()
        watch = CertificateWatch(loop, lambda: int(loop.time() * 1000), ends)
        watch.start()
        await asyncio.sleep(1)
        assert [record.getMessage() for record in caplog.records] == [
            "the certificate for OVER ended on 1969-12-31",
            "the certificate for SOON ends on 1970-01-30, in 29 days",
        ]
        caplog.clear()
        ends["OVER"] = 200 * DAY_S  # it is renewed
        await asyncio.sleep(DAY_S)
        assert [record.getMessage() for record in caplog.records] == [
            "the certificate for SOON ends on 1970-01-30, in 28 days"
        ]
        await watch.close()

    run_virtually(run())


def configured(authority: Authority, keystore: Path, **more: str) -> dict[str, str]:
    return {
        "listener_security_protocol_map": "IN:SSL,CONTROLLER:SSL",
        "ssl_keystore_location": str(keystore),
        "ssl_truststore_location": str(authority.certificate),
        **more,
    }


@pytest.mark.parametrize("listener", ["in", "controller"])
@pytest.mark.parametrize(
    ("days", "signer", "why"), [(-1, "authority", "has expired"), (9, "other", "issuer")]
)
def test_a_node_does_not_start_with_what_no_other_would_accept(
    authority: Authority, tmp_path: Path, listener: str, days: int, signer: str, why: str
) -> None:
    """As in Kafka. It ran, and had no connection to anybody."""
    signers = {"authority": authority, "other": Authority.create(tmp_path, "other")}
    good = authority.issue("good", "/CN=node")
    bad = signers[signer].issue("bad", "/CN=node", days=days)
    own = {f"listener_name_{listener}_ssl_keystore_location": str(bad)}
    with pytest.raises(FatalError, match=f"bad.pem: other nodes would not accept it: .*{why}"):
        NodeSecurity(config(**configured(authority, good, **own)))


@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_a_certificate_that_no_other_node_would_accept_is_not_taken(
    authority: Authority, tmp_path: Path, client_auth: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It took the place of one that was good, on both ends of all connections from then on."""
    caplog.set_level(logging.INFO)
    store = tmp_path / "store.pem"
    good = authority.issue("good", "/CN=node", days=20).read_text()
    store.write_text(good)
    node = config(**configured(authority, store, ssl_client_auth=client_auth))
    security = NodeSecurity(node)
    used = [each.context for each in every_end(security)]
    assert len(used) == 4
    ends = dict(security.certificate_ends)
    assert set(ends) == {"IN", "CONTROLLER"}
    later = authority.issue("later", "/CN=node", days=40).read_text()
    key = good[: good.index("-----BEGIN CERT")]
    for bad in (
        authority.issue("old", "/CN=node", days=-1).read_text(),
        Authority.create(tmp_path, "other").issue("theirs", "/CN=node").read_text(),
        key + later[later.index("-----BEGIN CERT") :],
        good[:-100],
        key,
        "",
    ):
        store.write_text(bad)
        caplog.clear()
        security.renew(node)
        assert [each.context for each in every_end(security)] == used
        assert security.certificate_ends == ends
        assert len(caplog.records) == 2, "one line for each listener"
        assert all("is not renewed: ssl.keystore.location=" in each for each in caplog.messages)
    store.write_text(later)
    caplog.clear()
    security.renew(node)
    assert not {each.context for each in every_end(security)} & set(used)
    day = day_of(openssls(store))
    assert caplog.messages == [
        f"the certificate for {name} is renewed, and good until {day}" for name in ("IN", "CONTROLLER")
    ]


def every_end(security: NodeSecurity) -> list[RenewableTls]:
    """Listeners, and the node's own connections."""
    own = (security.to_brokers, security.to_controllers)
    return [each.tls for each in (*security.listeners.values(), *own) if each.tls is not None]
