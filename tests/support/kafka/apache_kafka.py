"""Apache Kafka as a process: one combined node, open on one port, behind TLS and SASL on another."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kraft.local.free_ports import HOST
from tests.support.kafka.kafka_tools import JVM, PATIENCE_S
from tests.support.waiting import wait_until

USER: Final = "anna"
PASSWORD: Final = "anna's secret = this"
STORE_PASSWORD: Final = "anna's secret = this"
_STOP_PATIENCE_S: Final = 30


@dataclass(frozen=True)
class ApacheKafka:
    """What `running_kafka` gives."""

    bootstrap: str
    secured: str
    """SASL_SSL: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, for `USER` with `PASSWORD`."""
    certificate: Path
    """PEM; what a client has to trust."""


@contextmanager
def running_kafka(
    jars: Path, directory: Path, ports: list[int], settings: Mapping[str, str] | None = None
) -> Iterator[ApacheKafka]:
    """Three ports. Ended by pid whatever happens."""
    client, secured, controller = ports
    store, certificate = _certificate(directory)
    login = f'username="{USER}" password="{PASSWORD}"'
    properties: Mapping[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{client},SASL_SSL://{HOST}:{secured},CONTROLLER://{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "log.dirs": directory / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        **{
            f"listener.name.sasl_ssl.scram-sha-{bits}.sasl.jaas.config": (
                f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};"
            )
            for bits in (256, 512)
        },
        "ssl.keystore.location": store,
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.keystore.type": "PKCS12",
        "log.retention.ms": -1,  # tests send records of years ago, and its first sweep comes after 30 s
        **(settings or {}),
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = ["java", *JVM, "-cp", f"{jars}/*"]
    scram = [
        argument
        for bits in (256, 512)
        for argument in ("--add-scram", f'SCRAM-SHA-{bits}=[name={USER},password="{PASSWORD}"]')
    ]
    _run(*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(path), *scram)
    with (directory / "node.log").open("wb") as log:
        node = subprocess.Popen([*java, "kafka.Kafka", str(path)], stdout=log, stderr=subprocess.STDOUT)
    try:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{client}", "log_level": 0})
        wait_until(lambda: _answers(admin) or node.poll() is not None, "Apache Kafka answers", PATIENCE_S)
        assert node.poll() is None, (directory / "node.log").read_text()[-3_000:]
        yield ApacheKafka(f"{HOST}:{client}", f"{HOST}:{secured}", certificate)
    finally:
        node.terminate()
        with suppress(subprocess.TimeoutExpired):
            node.wait(_STOP_PATIENCE_S)
        node.kill()
        node.wait()


def _answers(admin: AdminClient) -> bool:
    with suppress(KafkaException):
        return bool(admin.list_topics(timeout=1).brokers)
    return False


def _certificate(directory: Path) -> tuple[Path, Path]:
    """A key with its certificate, in a store for Java; and the certificate as PEM."""
    store, certificate = directory / "broker.p12", directory / "broker.pem"
    keytool = ["keytool", "-keystore", str(store), "-storepass", STORE_PASSWORD, "-alias", "broker"]
    _run(*keytool, "-genkeypair", "-keyalg", "EC", "-dname", "CN=broker", "-validity", "30",
         "-storetype", "PKCS12", "-ext", f"san=ip:{HOST}", "-ext", "bc=ca:true")  # fmt: skip
    _run(*keytool, "-exportcert", "-rfc", "-file", str(certificate))
    return store, certificate


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
