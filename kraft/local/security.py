"""A local cluster behind TLS, logins or both: what its nodes' server.properties say, and how clients connect.

    DIR/tls/                the authority, and one certificate for all nodes
    DIR/client.properties   for --command-config, and Apache Kafka's own tools

All listeners are alike, the controllers' too. Logins are by SCRAM; there are two users, the nodes' and the
clients', with passwords of their own in every cluster.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraft.local.certificates import Authority
from kraft.net.connection_security import ConnectionSecurity, Login, Tls, renewable
from metadata_quorum.foundation.disk import PRIVATE_DIRECTORY

MECHANISM: Final = "SCRAM-SHA-512"
CONTROLLER: Final = "CONTROLLER"
NODE_USER: Final = "node"
CLIENT_USER: Final = "client"
_PASSWORD_BYTES: Final = 18
_NODE: Final = "node"
"""The subject of the nodes' certificate, and the name of its files."""


@dataclass(frozen=True, slots=True)
class LocalSecurity:
    """How the nodes of a local cluster are secured, as written in cluster.json."""

    ca: str | None = None
    """The authority's certificate, for clients; None without TLS."""
    keystore: str | None = None
    """The nodes' key and certificate."""
    node_password: str | None = field(default=None, repr=False)
    """None without logins."""
    client_password: str | None = field(default=None, repr=False)

    @property
    def protocol(self) -> str:
        """Kafka's name, of every listener."""
        if self.client_password is None:
            return "PLAINTEXT" if self.ca is None else "SSL"
        return "SASL_PLAINTEXT" if self.ca is None else "SASL_SSL"

    @property
    def listener(self) -> str:
        """The name of the clients' and brokers' listener: its protocol's."""
        return self.protocol

    def users(self) -> Sequence[str]:
        """The users with their passwords, as `kraft storage format --add-scram` takes them."""
        if self.client_password is None or self.node_password is None:
            return ()
        passwords = {NODE_USER: self.node_password, CLIENT_USER: self.client_password}
        return [f"{MECHANISM}=[name={name},password={password}]" for name, password in passwords.items()]

    def node_properties(self) -> dict[str, str]:
        """The keys of server.properties besides `listeners`."""
        if self == PLAINTEXT:
            return {}
        names = (self.listener, CONTROLLER)
        properties = {
            "listener.security.protocol.map": ",".join(f"{name}:{self.protocol}" for name in names),
            "inter.broker.listener.name": self.listener,
        }
        if self.ca is not None and self.keystore is not None:
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.keystore,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.ca,
            }
        if self.node_password is not None:
            properties |= {
                "sasl.enabled.mechanisms": MECHANISM,
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                "sasl.mechanism.controller.protocol": MECHANISM,
            }
            for name in names:
                key = f"listener.name.{name.lower()}.{MECHANISM.lower()}.sasl.jaas.config"
                properties[key] = _jaas(NODE_USER, self.node_password)
        return properties

    def client_properties(self) -> dict[str, str]:
        """The properties of a Java client."""
        properties = {"security.protocol": self.protocol}
        if self.ca is not None:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if self.client_password is not None:
            properties |= {
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": _jaas(CLIENT_USER, self.client_password),
            }
        return properties

    def librdkafka_settings(self) -> dict[str, str]:
        """The settings of a client that uses librdkafka."""
        settings = {"security.protocol": self.protocol}
        if self.ca is not None:
            settings["ssl.ca.location"] = self.ca
        if self.client_password is not None:
            settings |= {
                "sasl.mechanism": MECHANISM,
                "sasl.username": CLIENT_USER,
                "sasl.password": self.client_password,
            }
        return settings

    def connection(self) -> ConnectionSecurity:
        """What our own client needs."""
        tls = None if self.ca is None else renewable(Tls(ca_path=self.ca))
        login = None
        if self.client_password is not None:
            login = Login(MECHANISM, CLIENT_USER, self.client_password)
        return ConnectionSecurity(tls, login)


PLAINTEXT: Final = LocalSecurity()


def planned_security(directory: Path, *, tls: bool, sasl: bool) -> LocalSecurity:
    """For a new cluster in `directory`. With TLS its files are still to be made."""
    authority = _authority(directory)
    ca, keystore = (str(authority.certificate), str(authority.keystore(_NODE))) if tls else (None, None)
    node, client = (secrets.token_urlsafe(_PASSWORD_BYTES) if sasl else None for _ in range(2))
    return LocalSecurity(ca, keystore, node, client)


def make_certificates(directory: Path) -> None:
    """The files that `planned_security` names. Raises FatalError where there is no openssl, OSError."""
    authority = _authority(directory)
    authority.directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    Authority.create(authority.directory, authority.name).issue(_NODE, f"/CN={_NODE}")


def _authority(directory: Path) -> Authority:
    return Authority(directory / "tls", "ca")


def _jaas(user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{password}";'
