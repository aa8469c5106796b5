"""Users and rights from the outside: Apache Kafka's own tools and ours, over SASL_SSL with
`--command-config`, on three nodes that know each other by SCRAM too."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from typer.testing import CliRunner

from kraft.cli.main import cli
from kraft.config.node_config import Config
from kraft.config.properties import format_properties
from kraft.local.certificates import Authority
from kraft.local.local_cluster import LocalCluster
from tests.compat.secured import brokers, secured
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.row("U4", "U2"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH"),
]

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = ["SCRAM-SHA-512=[name=node,password=n0de]", "SCRAM-SHA-256=[name=root,password=r00t]"]
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]], authority: Authority
) -> Iterator[LocalCluster]:
    jaas = f'{SCRAM_MODULE} required username="node" password="n0de";'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(authority.issue("node", "/CN=node")),
        "ssl.truststore.location": str(authority.certificate),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": jaas,
        "listener.name.controller.scram-sha-512.sasl.jaas.config": jaas,
        "authorizer.class.name": "standard",
        "super.users": "User:node;User:root",
    }
    root = login(authority, "root", "r00t")
    with secured(tmp_path_factory.mktemp("tools"), free_ports(9), settings, root, users=USERS) as cluster:
        yield cluster


def login(authority: Authority, user: str, password: str) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(authority.certificate),
    }


@pytest.fixture
def properties(authority: Authority, tmp_path: Path) -> Callable[[str, str], str]:
    """A file of client properties for a user, as Java's clients and our commands take it."""

    def written(user: str, password: str) -> str:
        path = tmp_path / f"{user}.properties"
        path.write_text(
            format_properties(
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "SCRAM-SHA-256",
                    "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user}" password="{password}";',
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(authority.certificate),
                }
            )
        )
        return str(path)

    return written


def kraft(cluster: LocalCluster, config: str, *arguments: str, stdin: str = "") -> str:
    """What our command printed, or the trouble that ended it. That a broker of a busy machine did not answer
    in time, and another did, is said on standard error."""
    where = ("-b", cluster.bootstrap, "--command-config", config)
    done = CliRunner().invoke(cli, [*arguments, *where], input=stdin)
    return str(done.exception) if done.exception is not None else done.stdout


def produced(cluster: LocalCluster, client: dict[str, Any], topic: str) -> KafkaError | None:
    reports: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **client})
    producer.produce(topic, b"x", on_delivery=lambda error, message: reports.append(error))
    producer.flush(90)
    return reports[0]


def test_kafkas_tools(
    cluster: LocalCluster, authority: Authority, properties: Callable[[str, str], str], kafka_jars: Path
) -> None:
    tools = KafkaTools(kafka_jars, cluster.bootstrap)
    root = ("--command-config", properties("root", "r00t"))
    user = ("--entity-type", "users", "--entity-name", "joan")
    tools(CONFIG_COMMAND, *root, "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=joans]")
    joan = login(authority, "joan", "joans")
    wait_until(lambda: brokers(cluster, joan), "joan is let in")
    assert "SCRAM-SHA-256=iterations=4096" in tools(CONFIG_COMMAND, *root, "--describe", *user)
    joans = properties("joan", "joans")
    refused = tools.run(
        ACL_COMMAND, "--bootstrap-server", cluster.bootstrap, "--command-config", joans, "--list"
    )
    assert "ClusterAuthorizationException" in refused.out + refused.err
    hers = ("--allow-principal", "User:joan", "--producer", "--topic", "tools")
    tools(ACL_COMMAND, *root, "--add", *hers)
    wait_until(lambda: produced(cluster, joan, "tools") is None, "joan may write")
    listed = tools(ACL_COMMAND, *root, "--list", "--principal", "User:joan")
    assert "resourceType=TOPIC, name=tools, patternType=LITERAL" in listed
    assert {"WRITE", "DESCRIBE", "CREATE"} == {
        word for word in ("READ", "WRITE", "DESCRIBE", "CREATE", "DELETE") if f"operation={word}" in listed
    }
    tools(ACL_COMMAND, *root, "--remove", "--force", *hers)
    wait_until(lambda: produced(cluster, joan, "tools") is not None, "joan may not any longer")
    tools(CONFIG_COMMAND, *root, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    wait_until(lambda: not brokers(cluster, joan), "joan is gone")


def test_kafka_reads_the_users_that_a_cluster_begins_with(cluster: LocalCluster, kafka_jars: Path) -> None:
    config = Config.load(str(cluster.home(1) / "server.properties"))
    dumped = KafkaTools(kafka_jars)(
        "kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--files",
        f"{config.metadata_dir}/bootstrap.checkpoint",
    )
    assert '"type":"FEATURE_LEVEL_RECORD"' in dumped
    users = [line for line in dumped.splitlines() if '"type":"USER_SCRAM_CREDENTIAL_RECORD"' in line]
    assert len(users) == len(USERS)
    assert '"name":"root","mechanism":1' in "".join(users)


def test_our_commands(
    cluster: LocalCluster, authority: Authority, properties: Callable[[str, str], str], tmp_path: Path
) -> None:
    root = properties("root", "r00t")
    secret = tmp_path / "password"
    secret.write_text("karls\n")
    by_sha_256 = ("karl", "--mechanism", "SCRAM-SHA-256")
    assert kraft(cluster, root, "user", "add", *by_sha_256, "--password-file", str(secret)) == (
        "User karl can log in by SCRAM-SHA-256.\n"
    )
    karl = login(authority, "karl", "karls")
    wait_until(lambda: brokers(cluster, karl), "karl is let in")
    listed = kraft(cluster, root, "user", "list", "karl").splitlines()
    assert listed[1].split() == ["karl", "SCRAM-SHA-256", "4096"]
    assert "CLUSTER_AUTHORIZATION_FAILED" in kraft(cluster, properties("karl", "karls"), "user", "list")
    kraft(cluster, root, "user", "add", *by_sha_256, stdin="new\nnew\n")
    karls = properties("karl", "new")
    wait_until(lambda: "karl" not in kraft(cluster, karls, "topic", "list"), "karl is let in by the new one")

    mine = ("--allow-principal", "User:karl", "--topic", "karls-", "--resource-pattern-type", "prefixed")
    assert kraft(cluster, root, "acl", "add", *mine, "--operation", "create") == "Added 1 entry.\n"
    wait_until(
        lambda: "Created" in kraft(cluster, karls, "topic", "create", "karls-1"), "karl may create his topics"
    )
    assert "AUTHORIZATION_FAILED" in kraft(cluster, karls, "topic", "create", "another")
    for hidden in (
        "consume",
        "produce",
        "perf produce",
        "topic delete",
        "topic describe",
        "elect-leaders --topic",
    ):
        refused = kraft(cluster, karls, *hidden.split(), "karls-1")
        assert refused == "TOPIC_AUTHORIZATION_FAILED: karls-1", hidden
    listed = kraft(
        cluster, root, "acl", "list", "--topic", "karls-7", "--resource-pattern-type", "match"
    ).splitlines()
    assert [line.split() for line in listed[1:]] == [
        ["User:karl", "*", "allow", "CREATE", "topic", "prefixed", "karls-"]
    ]
    removed = kraft(cluster, root, "acl", "remove", *mine, "--operation", "create", "--force")
    assert "CREATE" in removed
    assert len(kraft(cluster, root, "acl", "list", "--principal", "User:karl").splitlines()) == 1
    assert kraft(cluster, root, "user", "delete", "karl") == "Deleted what user karl could log in with.\n"
    assert "RESOURCE_NOT_FOUND" in kraft(cluster, root, "user", "delete", "karl")
    wait_until(lambda: not brokers(cluster, login(authority, "karl", "new")), "karl is gone")


def test_what_is_wrong_is_one_sentence(
    cluster: LocalCluster, properties: Callable[[str, str], str], tmp_path: Path
) -> None:
    wrong = properties("root", "guessed")
    assert "SASL_AUTHENTICATION_FAILED" in kraft(cluster, wrong, "user", "list")
    assert "refused the credentials" in kraft(cluster, wrong, "topic", "list")
    stranger = Authority.create(tmp_path, "stranger")
    mistrusting = tmp_path / "mistrusting.properties"
    text = Path(properties("root", "r00t")).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("ssl.truststore.location")]
    mistrusting.write_text("\n".join([*lines, f"ssl.truststore.location={stranger.certificate}"]))
    assert "a certificate that we do not trust" in kraft(cluster, str(mistrusting), "user", "list")
    assert "no such mechanism" in kraft(cluster, wrong, "user", "add", "x", "--mechanism", "MD5")
    assert "cannot read" in kraft(cluster, str(tmp_path / "none"), "topic", "list")
    keystore = tmp_path / "jks.properties"
    keystore.write_text("security.protocol=SSL\nssl.truststore.type=JKS\n")
    assert "only PEM is read" in kraft(cluster, str(keystore), "topic", "list")
