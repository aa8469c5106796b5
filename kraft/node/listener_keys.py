"""What the keys of server.properties say of one listener, and of this node's own connections to it.

    ssl.*, sasl.*, or listener.name.NAME.* before them -> ListenerKeys -> listener_security.py

Files are read as they are asked for; one that is missing or invalid is a `FatalError`. So is, as in Kafka, a
certificate that nodes with the same configuration would not accept.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from kraft.config.jaas import parse_jaas
from kraft.config.keys import LISTENER_PREFIX
from kraft.config.node_config import ROWS, Config, format_value, parse_value, reject
from kraft.net.connection_security import (
    MECHANISMS,
    PLAIN,
    PLAINTEXT,
    ConnectionSecurity,
    Login,
    Tls,
    renewable,
)
from kraft.net.listener import ListenerSecurity
from kraft.net.renewable_tls import RenewableTls, check_agreement, new_context, what_failed
from kraft.net.sasl import LoginRules
from kraft.node.certificate_ends import end_of
from kraft.node.principal_mapping import parse_rules, principal_of
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import SecurityProtocol

_TLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_JAAS_USER: Final = "user_"


def between_nodes(config: Config) -> Mapping[str, str]:
    """The listeners at which this node connects to others, with the key for the mechanism of its login."""
    found = {config.controller_listener_names[0]: "sasl.mechanism.controller.protocol"}
    if config.is_broker:
        found[config.inter_broker_listener] = "sasl.mechanism.inter.broker.protocol"
    return found


class ListenerKeys:
    """The keys as they hold for one listener."""

    def __init__(self, config: Config, listener: str) -> None:
        self._config = config
        self._prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        self.listener = listener
        self.protocol = config.protocol_of(listener)
        self._is_between_nodes = listener in between_nodes(config)

    def text(self, name: str) -> str:
        """The listener's own value, else the node's; empty where there is none."""
        own = self._config.given.get(self._prefix + name)
        if own is None:
            return self._config.value_text(name)
        return format_value(parse_value(ROWS[name], own))

    def listener_security(self) -> ListenerSecurity:
        asks_login = self.protocol in _SASL
        if self.protocol not in _TLS:
            return ListenerSecurity(asks_login=asks_login)
        if not self.text("ssl.keystore.location"):
            self._reject(
                "ssl.keystore.location", f"{self.listener} speaks TLS: it needs a key and a certificate"
            )
        context = new_context(ssl.Purpose.CLIENT_AUTH)
        self._limit_versions(context)
        self._load_key(context)
        # Behind SASL one is whom one logs in as.
        mode = _CLIENT_AUTH[self.text("ssl.client.auth")] if not asks_login else ssl.CERT_NONE
        context.verify_mode = mode
        if mode is not ssl.CERT_NONE:
            if not self.text("ssl.truststore.location"):
                self._reject(
                    "ssl.truststore.location", f"{self.listener} asks for certificates: whose does it trust?"
                )
            self._read(context.load_verify_locations, "ssl.truststore.location")
        self._check_acceptance(context)
        if mode is ssl.CERT_NONE:
            return ListenerSecurity(RenewableTls(context), asks_login=asks_login)
        rules = parse_rules(self.text("ssl.principal.mapping.rules"))
        return ListenerSecurity(RenewableTls(context), lambda certificate: principal_of(certificate, rules))

    def _check_acceptance(self, server: ssl.SSLContext) -> None:
        """Kafka: SslEngineValidator. Else nodes would find at their next connections that they have none."""
        if not self._is_between_nodes:
            return
        try:
            check_agreement(self._client_tls(checks_host=False).context, server)
        except ssl.SSLError as error:
            self._reject("ssl.keystore.location", f"other nodes would not accept it: {what_failed(error)}")

    def renew(self, accepting: ListenerSecurity | None, own: ConnectionSecurity | None) -> None:
        """Contexts of their own take the place of those in use, if all files are good: of the listener, and
        of the node's own connections to it, for the other end may ask for a certificate."""
        renewed = self.listener_security().tls if accepting is not None else None
        renewed_own = self._client_tls() if own is not None and own.tls is not None else None
        if accepting is not None and accepting.tls is not None and renewed is not None:
            accepting.tls.context = renewed.context
        if own is not None and own.tls is not None and renewed_own is not None:
            own.tls.context = renewed_own.context

    def certificate_end(self) -> int | None:
        """Of what is in the file now."""
        path = self.text("ssl.keystore.location")
        if self.protocol not in _TLS or not path:
            return None
        try:
            return end_of(Path(path).read_text("ascii", "replace"))
        except OSError:
            return None

    def login_rules(self) -> LoginRules:
        name = "sasl.enabled.mechanisms"
        mechanisms = tuple(each for each in self.text(name).split(",") if each)
        if not mechanisms:
            self._reject(name, f"{self.listener} asks for a login: by what? {', '.join(MECHANISMS)}")
        users = {
            option.removeprefix(_JAAS_USER): password
            for option, password in self._jaas(PLAIN).items()
            if option.startswith(_JAAS_USER)
        }
        delay_s = self._config.connection_failed_authentication_delay_ms / 1000
        lifetime_ms = int(self.text("connections.max.reauth.ms"))
        return LoginRules(mechanisms, users, delay_s, lifetime_ms, self._config.sasl_server_max_receive_size)

    def connection_security(self, mechanism_key: str) -> ConnectionSecurity:
        """How this node speaks to that listener of other nodes. `mechanism_key` names that of its login."""
        if self.protocol is SecurityProtocol.PLAINTEXT:
            return PLAINTEXT
        return ConnectionSecurity(
            self._client_tls() if self.protocol in _TLS else None,
            self._login(mechanism_key) if self.protocol in _SASL else None,
        )

    def _client_tls(self, *, checks_host: bool = True) -> RenewableTls:
        checks_host = checks_host and bool(self.text("ssl.endpoint.identification.algorithm"))
        try:
            tls = renewable(
                Tls(ca_path=self.text("ssl.truststore.location") or None, checks_host=checks_host)
            )
        except (OSError, ValueError) as error:
            self._reject("ssl.truststore.location", _reason(error))
        self._limit_versions(tls.context)
        if self.text("ssl.keystore.location"):
            self._load_key(tls.context)
        return tls

    def _limit_versions(self, context: ssl.SSLContext) -> None:
        name = "ssl.enabled.protocols"
        versions = [_VERSIONS[each] for each in self.text(name).split(",") if each in _VERSIONS]
        if not versions:
            self._reject(name, f"one of {', '.join(_VERSIONS)} is to be among them")
        context.minimum_version, context.maximum_version = min(versions), max(versions)

    def _login(self, mechanism_key: str) -> Login:
        mechanism = self._config.value_text(mechanism_key)
        if not mechanism:
            self._reject(mechanism_key, f"{self.listener} asks for a login, this node's own too")
        options = self._jaas(mechanism)
        if "username" not in options or "password" not in options:
            key = f"{self._prefix}{mechanism.lower()}.sasl.jaas.config"
            raise FatalError(
                ExitCode.BAD_CONFIG, f'{key}: needs username="..." password="..." for this node\'s own login'
            )
        return Login(mechanism, options["username"], options["password"])

    def _jaas(self, mechanism: str) -> Mapping[str, str]:
        """MODULE required NAME="VALUE" ...; of that mechanism on this listener."""
        given = self._config.given
        text = given.get(f"{self._prefix}{mechanism.lower()}.sasl.jaas.config")
        return parse_jaas(self.text("sasl.jaas.config") if text is None else text)

    def _load_key(self, context: ssl.SSLContext) -> None:
        load = partial(context.load_cert_chain, password=self.text("ssl.key.password"))
        self._read(load, "ssl.keystore.location")

    def _read(self, load: Callable[[str], object], name: str) -> None:
        try:
            load(self.text(name))
        except (OSError, ValueError) as error:
            self._reject(name, _reason(error))

    def _reject(self, name: str, bound: str) -> NoReturn:
        own = self._prefix + name
        reject(own if own in self._config.given else name, self.text(name), bound)


def _reason(error: OSError | ValueError) -> str:
    """A name that no file can have (a NUL in it) is a `ValueError`."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "its key is not that of its certificate"
        return f"is no PEM that OpenSSL can read ({error.reason or error})"
    known = error.strerror if isinstance(error, OSError) else None
    return f"cannot be read: {known or error}"
