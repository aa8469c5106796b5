"""SCRAM users: what the cluster keeps of a password (RFC 5802, RFC 7677), by user and mechanism.

    password --derive--> UserScramCredentialRecord -> metadata log -> image.scram -> a login's exchange

Lowest floor but for records.py; sockets and messages of a login are in kraft/net/.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import IntEnum
from typing import Final

from metadata_quorum.records import UserScramCredentialRecord


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
    """What may be kept: neither key tells the password, nor lets anybody in."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.hash_name)
    return UserScramCredentialRecord(
        name=user,
        mechanism=int(mechanism),
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", mechanism.hash_name),
        iterations=iterations,
    )


def iterations_problem(iterations: int) -> str | None:
    """What is wrong with a number of iterations, in Kafka's words."""
    if iterations < MIN_ITERATIONS:
        return "Too few iterations"
    return "Too many iterations" if iterations > MAX_ITERATIONS else None
