"""SCRAM users: what the cluster keeps of a password (RFC 5802, RFC 7677), by user and mechanism.

    password --derive--> UserScramCredentialRecord -> metadata log -> image.scram -> a login's exchange

A login with a name that nobody has gets a decoy. It is a function of the name and of a secret of the
cluster, which is in its metadata: so all brokers give the same one, today and after a restart. In
iterations and kind of salt it is like one of those in use.

Below it are only metadata/records.py and delta.py; sockets and messages of a login are in
kraft/net/.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from enum import IntEnum
from typing import Final, NamedTuple

from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import ConfigRecord, UserScramCredentialRecord


class ScramMechanism(IntEnum):
    """As records and requests number them."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return SASL_NAMES[self]

    @property
    def hash_name(self) -> str:
        return _HASHES[self]


SASL_NAMES: Final = {ScramMechanism.SHA_256: "SCRAM-SHA-256", ScramMechanism.SHA_512: "SCRAM-SHA-512"}
BY_SASL_NAME: Final = {name: mechanism for mechanism, name in SASL_NAMES.items()}
_HASHES: Final = {ScramMechanism.SHA_256: "sha256", ScramMechanism.SHA_512: "sha512"}

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
SALT_BYTES: Final = 26


def salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi(password, salt, iterations). Like Kafka's, without SASLprep."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def derive(
    user: str, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    """What is stored of a password: neither key gives the password away, nor can be used to log in."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.hash_name)
    return UserScramCredentialRecord(
        name=user,
        mechanism=int(mechanism),
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", mechanism.hash_name),
        iterations=iterations,
    )


# -- decoys ----------------------------------------------------------------------------------------

DECOY_SECRET_BYTES: Final = 32

_SECRET_OF: Final = (int(ResourceType.UNKNOWN), "")
"""A resource that no request can name: neither described nor altered."""
_SECRET_KEY: Final = "kraft.scram.decoy.secret"
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def decoy_secret_record(secret: str) -> ConfigRecord:
    """The record that keeps the secret in the metadata."""
    kind, name = _SECRET_OF
    return ConfigRecord(resource_type=kind, resource_name=name, name=_SECRET_KEY, value=secret)


def decoy_secret_of(image: MetadataImage) -> bytes:
    """The secret in the image; empty where there is none yet."""
    return image.config(*_SECRET_OF).get(_SECRET_KEY, "").encode()


class _CredentialShape(NamedTuple):
    """What a client sees of a credential besides the salt itself. Java's clients make salts of base 36."""

    iterations: int
    salt_bytes: int
    is_text: bool


_USUAL: Final = _CredentialShape(MIN_ITERATIONS, SALT_BYTES, is_text=False)


class Decoys:
    """Decoy credentials, like those that are in use."""

    def __init__(self, secret: bytes, used: Collection[UserScramCredentialRecord]) -> None:
        self._secret = secret
        self._shapes = {
            mechanism: sorted({_shape(each) for each in used if each.mechanism == mechanism}) or [_USUAL]
            for mechanism in ScramMechanism
        }

    def of(self, user: str, mechanism: ScramMechanism) -> UserScramCredentialRecord:
        """The same for a name each time, as long as a credential like it is in use."""
        name = f"{mechanism.hash_name}:{user}".encode()
        shape = max(
            self._shapes[mechanism], key=lambda each: self._bytes(name + repr(tuple(each)).encode(), 8)
        )
        salt = self._bytes(name, shape.salt_bytes)
        if shape.is_text:
            salt = bytes(_BASE_36[each % len(_BASE_36)] for each in salt)
        key = self._bytes(name + b":key", hashlib.new(mechanism.hash_name).digest_size)
        return UserScramCredentialRecord(
            name=user,
            mechanism=int(mechanism),
            salt=salt,
            stored_key=key,
            server_key=key,
            iterations=shape.iterations,
        )

    def _bytes(self, of: bytes, count: int) -> bytes:
        return hashlib.shake_256(hmac.digest(self._secret, of, "sha512")).digest(count)


def _shape(credential: UserScramCredentialRecord) -> _CredentialShape:
    salt = credential.salt
    return _CredentialShape(
        credential.iterations, len(salt), bool(salt) and all(each in _BASE_36 for each in salt)
    )


def iterations_problem(iterations: int) -> str | None:
    """What is wrong with a number of iterations, in Kafka's words."""
    if iterations < MIN_ITERATIONS:
        return "Too few iterations"
    return "Too many iterations" if iterations > MAX_ITERATIONS else None
