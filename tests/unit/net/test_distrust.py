"""Nodes that do not trust each other say so: they were silent, and said of the other end: "failed: "."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from kraft.local.certificates import Authority
from kraft.local.free_ports import HOST
from kraft.net.client import Address
from kraft.net.connection_quotas import ListenerKind
from kraft.net.connection_security import ConnectionSecurity, Tls, dial, renewable
from kraft.net.listener import ListenerSecurity
from kraft.net.renewable_tls import RenewableTls
from tests.unit.net.echo_node import node
from tests.unit.net.harness import on_a_loop, until

pytestmark = pytest.mark.row("U4")


def test_the_log_says_now_and_then_who_is_not_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    authority, other = (Authority.create(tmp_path, name) for name in ("ca", "other"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("node", "/CN=node"))
    trusting_others = ConnectionSecurity(renewable(Tls(ca_path=str(other.certificate))))

    @on_a_loop
    async def distrust() -> None:
        async with node(TLS=ListenerSecurity(RenewableTls(context))) as running:
            address = Address(HOST, running.ports["TLS"])
            for _ in range(3):
                with pytest.raises(ssl.SSLCertVerificationError):
                    await dial(asyncio.get_running_loop(), address, "test", trusting_others, timeout_s=5)
            await until(lambda: not running.server.connections.counts[ListenerKind.SHARED].total)
            assert said(caplog, logging.WARNING) == [
                f"no connection to {address}: TLS fails: unable to get local issuer certificate"
            ]
            ended = "the client ended it; it may not trust our certificate"
            assert said(caplog, logging.INFO) == [f"a TLS handshake with {HOST} failed: {ended}"] * 3

    distrust()


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]
