"""`--command-config FILE`: how a command connects to a cluster that requires TLS or a login.

    Kafka's client properties -> in_use -> librdkafka_settings -> confluent_client.py
                              -> way -----------------------> peers/blocking_client.py, our own client

Every command that has `--bootstrap-server` (or `--http`) has this option too: `with_option` adds it, so that
no command needs to declare it. Key and trust stores are PEM files, as everywhere here.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft.cli.added_option import option_of
from kraft.cli.errors import CliError, UsageError
from kraft.cli.text_file import text_of

if TYPE_CHECKING:
    from kraft.net.connection_security import ConnectionSecurity

_CONNECTS: Final = {"--bootstrap-server", "--http"}

_UNDERSTOOD: Final = {
    "sasl.username", "sasl.password", "client.id", "ssl.key.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.keystore.location", "ssl.truststore.certificates", "ssl.truststore.location",
    "ssl.truststore.type", "ssl.keystore.type", "ssl.endpoint.identification.algorithm", "security.protocol",
    "sasl.mechanism", "sasl.jaas.config", "bootstrap.servers",
}  # fmt: skip


in_use: ContextVar[Mapping[str, str]] = ContextVar("client properties", default=MappingProxyType({}))
"""The client properties of the command that runs."""


def load(path: str) -> dict[str, str]:
    """Raises `CliError`."""
    from kraft.config.properties import parse_properties

    properties = parse_properties(text_of(path))
    unused = sorted(properties.keys() - _UNDERSTOOD)
    if unused:
        print(f"kraft: {path}: not used: {', '.join(unused)}", file=sys.stderr)
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if properties.get(name, "PEM") != "PEM":
            raise CliError(f"{path}: {name}={properties[name]}: only PEM is read")
    return properties


def librdkafka_settings() -> dict[str, str]:
    """How librdkafka connects."""
    given = in_use.get()
    keystore, checks = given.get("ssl.keystore.location"), "ssl.endpoint.identification.algorithm"
    username, password = login_of(given)
    settings = {
        "security.protocol": given.get("security.protocol"),
        "sasl.mechanism": given.get("sasl.mechanism"),
        "sasl.username": username,
        "sasl.password": password,
        "ssl.ca.location": given.get("ssl.truststore.location"),
        "ssl.ca.pem": given.get("ssl.truststore.certificates"),
        "ssl.certificate.location": keystore,
        "ssl.key.location": keystore,
        "ssl.certificate.pem": given.get("ssl.keystore.certificate.chain"),
        "ssl.key.pem": given.get("ssl.keystore.key"),
        "ssl.key.password": given.get("ssl.key.password"),
        checks: (given[checks] or "none") if checks in given else None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def login_of(given: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Username and password."""
    from kraft.config.jaas import parse_jaas

    options = parse_jaas(given.get("sasl.jaas.config", ""))
    return (
        given.get("sasl.username", options.get("username")),
        given.get("sasl.password", options.get("password")),
    )


def connection_security(given: Mapping[str, str]) -> ConnectionSecurity:
    """How our own client connects. Raises `CliError`."""
    from kraft.net.connection_security import MECHANISMS, ConnectionSecurity, Login, Tls, renewable

    protocol = given.get("security.protocol", "PLAINTEXT")
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise UsageError(f"security.protocol={protocol}: one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL")
    tls = login = None
    if protocol.endswith("SSL"):
        try:
            tls = renewable(
                Tls(
                    ca_path=given.get("ssl.truststore.location"),
                    ca_pem=given.get("ssl.truststore.certificates"),
                    certificate_path=given.get("ssl.keystore.location"),
                    certificate_pem=given.get("ssl.keystore.certificate.chain"),
                    key_pem=given.get("ssl.keystore.key"),
                    key_password=given.get("ssl.key.password"),
                    checks_host=bool(given.get("ssl.endpoint.identification.algorithm", "https")),
                )
            )
        except OSError as error:
            raise CliError(f"the certificates cannot be read: {error.strerror or error}") from None
    if protocol.startswith("SASL"):
        mechanism = given.get("sasl.mechanism", "")
        username, password = login_of(given)
        if mechanism not in MECHANISMS:
            raise UsageError(f"sasl.mechanism={mechanism}: one of {', '.join(MECHANISMS)}")
        if username is None or password is None:
            raise UsageError(f"sasl.jaas.config: {mechanism} takes a username and a password")
        login = Login(mechanism, username, password)
    return ConnectionSecurity(tls, login)


def _use(ctx: typer.Context, value: str | None) -> str | None:
    if value is not None:
        from kraft.peers.blocking_client import SECURITY

        given = load(value)
        spoken, used = SECURITY.set(connection_security(given)), in_use.set(given)
        ctx.call_on_close(functools.partial(SECURITY.reset, spoken))
        ctx.call_on_close(functools.partial(in_use.reset, used))
    return value


@functools.cache
def _option() -> Any:
    def template(
        command_config: Annotated[
            str | None,
            typer.Option(
                "--command-config",
                metavar="FILE",
                callback=_use,
                is_eager=True,
                expose_value=False,
                help="Kafka's client properties: security.protocol, sasl.*, ssl.*",
            ),
        ] = None,
    ) -> None:
        """A command of which only the option is used."""

    return option_of(template)


def with_option(command: Any) -> Any:
    """The command, or group of commands, with `--command-config` wherever it connects."""
    for inner in getattr(command, "commands", {}).values():
        with_option(inner)
    names = {name for param in command.params for name in param.opts}
    if names & _CONNECTS and "--command-config" not in names:
        command.params.append(_option())
    return command
