"""Kafka's client properties as `--command-config` takes them; users that `storage format` writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kraft.cli.command_config import connection_security, in_use, librdkafka_settings, load
from kraft.cli.errors import CliError
from kraft.cli.main import cli
from kraft.config.node_config import Config
from kraft.local.free_ports import HOST
from kraft.net.connection_security import PLAINTEXT, Login
from kraft.peers.blocking_client import SECURITY
from kraft.storage.bootstrap import read_users
from metadata_quorum.foundation.disk import OsDisk

pytestmark = pytest.mark.row("U4")

JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="anna" password="a \\"b\\"";'
)


def written(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "client.properties"
    path.write_text("\n".join(lines))
    return str(path)


def test_a_login_for_both_clients(tmp_path: Path) -> None:
    given = load(
        written(
            tmp_path,
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=PLAIN",
            f"sasl.jaas.config={JAAS}",
        )
    )
    assert connection_security(given).login == Login("PLAIN", "anna", 'a "b"')
    token = in_use.set(given)
    try:
        assert librdkafka_settings() == {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "anna",
            "sasl.password": 'a "b"',
        }
    finally:
        in_use.reset(token)


def test_stores_and_hosts_in_librdkafkas_words(tmp_path: Path) -> None:
    given = load(
        written(
            tmp_path,
            "security.protocol=SSL",
            "ssl.truststore.type=PEM",
            "ssl.truststore.location=ca.pem",
            "ssl.keystore.location=me.pem",
            "ssl.endpoint.identification.algorithm=",
        )
    )
    token = in_use.set(given)
    try:
        assert librdkafka_settings() == {
            "security.protocol": "SSL",
            "ssl.ca.location": "ca.pem",
            "ssl.certificate.location": "me.pem",
            "ssl.key.location": "me.pem",
            "ssl.endpoint.identification.algorithm": "none",
        }
    finally:
        in_use.reset(token)


def test_nothing_given_is_plain_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert connection_security(load(written(tmp_path, "# nothing", "linger.ms=5"))) == PLAINTEXT
    assert "not used: linger.ms" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["security.protocol=TLS"], "security.protocol=TLS"),
        (["security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI"], "sasl.mechanism=GSSAPI"),
        (["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"], "takes a username and a password"),
        (["security.protocol=SSL", "ssl.truststore.location=/none"], "certificates cannot be read"),
        (["ssl.truststore.type=JKS"], "only PEM is read"),
    ],
)
def test_what_is_wrong_with_it(tmp_path: Path, lines: list[str], reason: str) -> None:
    with pytest.raises(CliError, match=reason):
        connection_security(load(written(tmp_path, *lines)))


def test_the_format_command_writes_users(tmp_path: Path) -> None:
    properties = written(
        tmp_path,
        "process.roles=broker,controller",
        "node.id=1",
        "controller.quorum.voters=1@127.0.0.1:2",
        "controller.listener.names=CONTROLLER",
        "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        f"log.dirs={tmp_path / 'data'}",
    )
    cluster = ("storage", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties)
    bad = CliRunner().invoke(cli, [*cluster, "--add-scram", "SCRAM-SHA-256=[name=anna]"])
    assert bad.exception is not None
    assert not (tmp_path / "data").exists()
    users = (
        "--add-scram",
        "SCRAM-SHA-256=[name=anna,password=x]",
        "-S",
        "SCRAM-SHA-512=[name=bert,password=y]",
    )
    done = CliRunner().invoke(cli, [*cluster, *users])
    assert done.exit_code == 0, done.output
    found = read_users(OsDisk(), Config.load(properties))
    assert [(each.name, each.mechanism) for each in found] == [("anna", 1), ("bert", 2)]


def test_of_a_command_that_has_ended_nothing_stays(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """Whoever else speaks to a cluster in this process would do so by TLS."""
    properties = written(tmp_path, "security.protocol=SSL", "ssl.endpoint.identification.algorithm=")
    nobody = f"{HOST}:{free_ports(1)[0]}"
    done = CliRunner().invoke(
        cli, ["user", "list", "--bootstrap-server", nobody, "--command-config", properties]
    )
    assert done.exit_code != 0
    assert SECURITY.get() == PLAINTEXT
    assert in_use.get() == {}
