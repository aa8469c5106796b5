"""Broker keys that change while a node runs: which, with what effect, and what is refused."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from kraft.api.config_validation import check_broker_values
from kraft.config.dynamic_config import DynamicBrokerConfig
from kraft.config.key import Update
from kraft.config.keys import NO_EFFECT
from kraft.config.node_config import ROWS, Config
from kraft.local.certificates import Authority
from kraft.local.free_ports import HOST
from kraft.net.renewable_tls import RenewableTls
from kraft.node.listener_security import CertificateRenewal, NodeSecurity
from kraft.node.settings import server_limits
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.foundation.topic_configs import DYNAMIC_BROKER_CONFIGS
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import ConfigRecord
from tests.support.node_config import config, mapped
from tests.unit.net.harness import until

pytestmark = pytest.mark.row("U2")

PLAIN: Any = {"listener_security_protocol_map": mapped("PLAINTEXT")}


class Node:
    """Takes configurations as a node does."""

    def __init__(self) -> None:
        self.config = config(**PLAIN, max_connections="100")
        self.live = DynamicBrokerConfig(self.config, self.apply)
        self.image: MetadataImage = EMPTY_IMAGE

    def apply(self, config: Config) -> None:
        self.config = config

    def set(self, broker: str, name: str, value: str | None) -> None:
        delta = MetadataDelta(self.image)
        kind = int(ResourceType.BROKER)
        delta.replay(ConfigRecord(resource_type=kind, resource_name=broker, name=name, value=value))
        self.image = delta.apply()
        self.live.take(delta, self.image)


def test_a_brokers_own_value_beats_everybodys_and_that_the_file() -> None:
    node = Node()
    node.set("", "max.connections", "50")
    assert node.config.max_connections == 50
    node.set("1", "max.connections", "20")
    assert node.config.max_connections == 20
    node.set("2", "max.connections", "30")  # another one's
    assert node.config.max_connections == 20
    node.set("1", "max.connections", None)
    assert node.config.max_connections == 50
    node.set("", "max.connections", None)
    assert node.config.max_connections == 100


def test_what_does_not_fit_spoils_nothing_else() -> None:
    node = Node()
    node.set("", "log.cleaner.backoff.ms", "never")
    node.set("", "node.id", "7")
    node.set("", "log.retention.ms", "5")  # logs take that for themselves
    node.set("", "log.cleaner.dedupe.buffer.size", "2097152")
    assert node.config.log_cleaner_dedupe_buffer_size == 2_097_152
    assert node.config.log_cleaner_backoff_ms == 15_000
    assert node.config.node_id == 1
    assert node.config.log_retention_ms is None


def test_every_key_that_kafka_calls_dynamic_may_change() -> None:
    """Kafka 4.1's DynamicBrokerConfig, without tiered storage, metrics reporters and keys of listeners."""
    of_kafka = {
        "background.threads", "compression.gzip.level", "compression.lz4.level", "compression.type",
        "compression.zstd.level", "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms", "log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second", "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms", "log.cleaner.threads",
        "log.cleanup.policy", "log.flush.interval.messages", "log.flush.interval.ms",
        "log.index.interval.bytes", "log.index.size.max.bytes", "log.local.retention.bytes",
        "log.local.retention.ms", "log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type", "log.preallocate", "log.retention.bytes", "log.retention.ms",
        "log.roll.jitter.ms", "log.roll.ms", "log.segment.bytes", "log.segment.delete.delay.ms",
        "max.connection.creation.rate", "max.connections", "max.connections.per.ip",
        "max.connections.per.ip.overrides", "message.max.bytes", "min.insync.replicas", "num.io.threads",
        "num.network.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers",
        "producer.id.expiration.ms", "transaction.partition.verification.enable",
        "unclean.leader.election.enable",
    }  # fmt: skip
    assert of_kafka <= DYNAMIC_BROKER_CONFIGS.keys()
    for key in of_kafka:
        default = DYNAMIC_BROKER_CONFIGS[key].default
        assert default is not None
        for per_broker in (True, False):
            check_broker_values({key: default}, per_broker=per_broker)
    fixed = {name for name, row in ROWS.items() if row.rule.update is Update.READ_ONLY}
    assert not fixed & DYNAMIC_BROKER_CONFIGS.keys()


@pytest.mark.parametrize(
    ("key", "value", "per_broker", "words"),
    [
        ("node.id", "2", True, "Cannot update these configs dynamically"),
        ("group.coordinator.threads", "2", True, "Cannot update these configs dynamically"),
        ("ssl.keystore.location", "/x", True, "only per-listener using the listener prefix"),
        ("listener.name.in.ssl.keystore.location", "/x", False, "broker id must be specified"),
        ("log.cleaner.dedupe.buffer.size", "5", True, "must be at least 1048576"),
        ("log.cleaner.threads", "many", False, "Not a number of type INT"),
        ("max.connections", "-1", False, "at least 0"),
        ("log.retention.ms", "0", False, "must not be 0"),
        ("compression.gzip.level", "0", True, "must not be 0"),
        ("max.connections.per.ip.overrides", "x", False, "Error parsing configuration property"),
        ("principal.builder.class", "x", True, "Class x could not be found"),
        ("sasl.login.class", "", True, "Cannot update these configs dynamically"),
        ("listener.security.protocol.map", "IN:SSL", True, "Cannot update these configs dynamically"),
        ("listener.name.in.ssl.client.auth", "none", True, "Cannot update these configs dynamically"),
        ("listener.name.in.sasl.enabled.mechanisms", "PLAIN", True, "Cannot update these configs dyn"),
        ("listener.name.in.plain.sasl.jaas.config", "x", True, "Cannot update these configs dynamically"),
    ],
)
def test_what_a_broker_is_not_sent(key: str, value: str, per_broker: bool, words: str) -> None:
    with pytest.raises(BrokerError, match=words) as refusal:
        check_broker_values({key: value}, per_broker=per_broker)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_addresses_with_a_limit_of_their_own() -> None:
    node = Node()
    node.set("", "max.connections.per.ip.overrides", "10.0.0.1:3, [0:0:0:0:0:0:0:1]:4,host:5")
    limits = server_limits(node.config, config(**PLAIN)).max_connections
    assert limits.of_hosts == {"10.0.0.1": 3, "::1": 4}
    node.set("", "max.connections.per.ip.overrides", "10.0.0.1")
    assert node.config.connections_of_hosts == {}


def test_values_that_fit_only_together() -> None:
    node = Node()
    node.set("", "max.connections.per.ip", "0")  # alone it would shut everybody out
    assert node.config.max_connections_per_ip > 0
    node.set("1", "max.connections.per.ip.overrides", "10.0.0.1:3")
    assert node.config.max_connections_per_ip == 0
    assert node.config.connections_of_hosts == {"10.0.0.1": 3}


@pytest.mark.parametrize("base", ["max.connections", "max.connection.creation.rate", "num.network.threads"])
def test_what_may_be_said_of_a_listener_for_all_brokers(base: str) -> None:
    check_broker_values({f"listener.name.plaintext.{base}": "500"}, per_broker=False)


def test_keys_of_nobody_are_kept_for_whom_it_concerns() -> None:
    for key in ("some.plugin.setting", "metric.reporters", "max.connections.per.ip.overrides"):
        check_broker_values({key: "" if key.startswith("m") else "1"}, per_broker=True)
    check_broker_values({"max.connections.per.ip.overrides": "1.2.3.4:5,host:0"}, per_broker=False)
    assert "num.io.threads" in NO_EFFECT  # known to Kafka, changeable, without effect


def test_of_two_values_that_contradict_each_other_one_is_in_effect() -> None:
    """Each fits the file. Both together ended the node, and again at each start."""
    node = Node()
    limits = {"max_connections_per_ip": "10", "max_connections_per_ip_overrides": "1.2.3.4:5"}
    node.live = DynamicBrokerConfig(config(**PLAIN, **limits), node.apply)
    node.set("1", "max.connections.per.ip.overrides", "")
    assert node.config.connections_of_hosts == {}
    node.set("", "max.connections.per.ip", "0")
    assert (node.config.max_connections_per_ip, node.config.connections_of_hosts) == (0, {"1.2.3.4": 5})
    node.set("", "max.connections.per.ip", "7")
    assert (node.config.max_connections_per_ip, node.config.connections_of_hosts) == (7, {})


def test_a_certificate_is_renewed_for_connections_from_then_on(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "authority")
    first, second = (authority.issue(name, f"/CN={name}") for name in ("first", "second"))
    protocol = {"listener_security_protocol_map": mapped("SSL")}
    static = config(
        **protocol, ssl_keystore_location=str(first), ssl_truststore_location=str(authority.certificate)
    )
    security = NodeSecurity(static)
    listener_security = security.listeners["IN"].tls
    assert listener_security is not None
    assert shown(listener_security, authority) == "first"
    in_use = RenewableTls(listener_security.context)
    security.renew(static.with_dynamic({"listener.name.in.ssl.keystore.location": str(second)}))
    assert shown(listener_security, authority) == "second"
    assert shown(in_use, authority) == "first", "changed under a handshake, it would end the process"
    for unreadable in (str(tmp_path / "gone"), "a\0b"):
        security.renew(static.with_dynamic({"listener.name.in.ssl.keystore.location": unreadable}))
        assert shown(listener_security, authority) == "second"
    both = {
        "listener.name.in.ssl.keystore.location": str(first),
        "listener.name.controller.ssl.keystore.location": "a\0b",
    }
    security.renew(static.with_dynamic(both))
    assert shown(listener_security, authority) == "first"


def test_an_authority_that_is_not_in_the_file_any_more_is_trusted_no_longer(tmp_path: Path) -> None:
    old, new = (Authority.create(tmp_path, name) for name in ("old", "new"))
    static = config(
        listener_security_protocol_map=mapped("SSL"), ssl_client_auth="required",
        ssl_keystore_location=str(old.issue("node", "/CN=node")),
        ssl_truststore_location=str(old.certificate),
    )  # fmt: skip
    security = NodeSecurity(static)
    renewed = {"keystore": new.issue("renewed", "/CN=node"), "truststore": new.certificate}
    keys = {f"listener.name.in.ssl.{kind}.location": str(path) for kind, path in renewed.items()}
    security.renew(static.with_dynamic(keys))
    listener_security = security.listeners["IN"].tls
    assert listener_security is not None
    (trusted,) = listener_security.context.get_ca_certs()
    assert dict(each for (each,) in trusted["subject"])["commonName"] == "new"


def test_renewals_come_one_after_the_other_and_the_newest_last() -> None:
    async def run() -> list[Config]:
        renewed: list[Config] = []
        may_end = asyncio.Event()

        async def renew(config: Config) -> None:
            await may_end.wait()
            renewed.append(config)

        renewal = CertificateRenewal(asyncio.get_running_loop(), renew)
        for each in configs[:3]:
            renewal.begin(each)
            await asyncio.sleep(0)
        assert renewed == []
        may_end.set()
        await until(lambda: len(renewed) == 2)
        renewal.begin(configs[3])
        await until(lambda: len(renewed) == 3)
        return renewed

    configs = [config(**PLAIN) for _ in range(4)]
    assert asyncio.run(run()) == [configs[0], configs[2], configs[3]]


def test_so_is_what_the_node_itself_shows_to_others(tmp_path: Path) -> None:
    """Brokers whose old certificate has come to its end must still reach each other."""
    old, new = (Authority.create(tmp_path, name) for name in ("old", "new"))
    first, second = old.issue("first", "/CN=first"), new.issue("second", "/CN=second")
    protocol = {"listener_security_protocol_map": "IN:SSL,CONTROLLER:SSL"}
    static = config(
        **protocol, ssl_keystore_location=str(first), ssl_truststore_location=str(old.certificate)
    )
    security = NodeSecurity(static)
    assert security.uses_tls
    listener = NodeSecurity(
        config(
            **protocol,
            ssl_keystore_location=str(second),
            ssl_truststore_location=str(new.certificate),
            ssl_client_auth="required",
        )
    ).listeners["IN"]
    own = [security.to_brokers.tls, security.to_controllers.tls]
    for each in own:
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(each, listener.tls)
    renewed = {
        f"listener.name.{name}.ssl.{kind}.location": str(path)
        for name in ("in", "controller")
        for kind, path in (("keystore", second), ("truststore", new.certificate))
    }
    security.renew(static.with_dynamic(renewed))
    for each in own:
        _, server = shake_hands(each, listener.tls)
        certificate = server.getpeercert()
        assert certificate is not None
        assert certificate["subject"][0] == (("commonName", "second"),)
    gone = {"listener.name.in.ssl.keystore.location": str(tmp_path / "gone")}
    security.renew(static.with_dynamic(renewed | gone))
    shake_hands(security.to_brokers.tls, listener.tls)


def shown(listener_security: RenewableTls, authority: Authority) -> str:
    """Whom the certificate names that a client is shown."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    client, _ = shake_hands(RenewableTls(context), listener_security)
    certificate = client.getpeercert()
    assert certificate is not None
    ((_, name),) = certificate["subject"][0]
    return str(name)


def shake_hands(
    client_end: RenewableTls | None, server_end: RenewableTls | None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    assert client_end is not None
    assert server_end is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_end.context.wrap_bio(to_server, to_client, server_side=True)
    client = client_end.context.wrap_bio(to_client, to_server, server_hostname=HOST)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client, server
