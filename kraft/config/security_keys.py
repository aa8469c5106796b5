"""TLS, SASL and the authorizer.

Keys of TLS and SASL may be given for one listener, as listener.name.NAME.KEY.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft.config.key import PER_BROKER, key

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class SecurityKeys:
    """Kafka's SslConfigs, SaslConfigs and BrokerSecurityConfigs."""

    ssl_keystore_location: str | None = key(
        None,
        "PEM file with a private key and its certificates; setting the key again reads the file again",
        update=PER_BROKER,
    )
    ssl_keystore_type: str = key(
        "PEM", "only PEM is read, and it is the default; Kafka's is JKS", choices=("PEM",), update=PER_BROKER
    )
    ssl_key_password: str | None = key(
        None, "password of the private key, if that is encrypted", secret=True, update=PER_BROKER
    )
    ssl_truststore_location: str | None = key(
        None, "PEM file with the authorities that the other end's certificate must come from; setting the "
        "key again reads the file again", update=PER_BROKER,
    )  # fmt: skip
    ssl_truststore_type: str = key(
        "PEM", "only PEM is read; Kafka's default is JKS", choices=("PEM",), update=PER_BROKER
    )
    ssl_client_auth: str = key(
        "none", "whether a client must show a certificate", choices=("none", "requested", "required")
    )
    ssl_principal_mapping_rules: str = key(
        "DEFAULT",
        "RULE:PATTERN/REPLACEMENT/[LU],... from a certificate's subject to a user; DEFAULT takes it whole",
    )
    ssl_enabled_protocols: tuple[str, ...] = key(
        ("TLSv1.2", "TLSv1.3"),
        "versions of TLS that may be spoken; TLSv1 and TLSv1.1 never are",
        choices=("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
    )
    ssl_endpoint_identification_algorithm: str = key(
        "https", "whether nodes check each other's host name against the certificate; empty: they do not",
        choices=("https", ""),
    )  # fmt: skip
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        (),
        "mechanisms that clients may use; Kafka's default is GSSAPI, which is not here",
        choices=SASL_MECHANISMS,
    )
    sasl_mechanism_inter_broker_protocol: str | None = key(
        None,
        "mechanism of brokers among themselves; no default, where Kafka has GSSAPI",
        choices=SASL_MECHANISMS,
    )
    sasl_mechanism_controller_protocol: str | None = key(
        None,
        "mechanism of nodes with controllers; no default, where Kafka has GSSAPI",
        choices=SASL_MECHANISMS,
    )
    sasl_jaas_config: str | None = key(
        None,
        'as listener.name.NAME.MECHANISM.sasl.jaas.config: MODULE required username="..." password="..." '
        'user_NAME="PASSWORD"; the first two are for this node\'s own connections, the others users of PLAIN',
        secret=True,
    )
    connections_max_reauth_ms: int = key(
        0,
        "a client must authenticate again within this, or its connection is closed; 0: never",
        minimum=0,
        bits=64,
    )
    connection_failed_authentication_delay_ms: int = key(
        100, "delay before a failed authentication is answered", minimum=0
    )

    authorizer_class_name: str = key(
        "", f"{STANDARD_AUTHORIZER}, or standard for short; empty: everybody may do everything",
        choices=("", STANDARD_AUTHORIZER, "standard"),
    )  # fmt: skip
    super_users: str = key("", "User:NAME;... who may do everything; the nodes' own principals belong here")
    allow_everyone_if_no_acl_found: bool = key(
        False, "whether everybody may use a resource that no access control entry names"
    )
