"""The first records of a new cluster, as `kraft storage format` writes them on its controllers.

    --add-scram text -> UserScramCredentialRecord -> DIR/bootstrap.checkpoint -> a controller's first claim
                                                                              -> scram_users.py, until then

The file has Kafka's name and format (a checkpoint with metadata.version and the users).
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Sequence
from typing import Final, NoReturn

from kraft.config.node_config import Config
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.features import BOOTSTRAP_FEATURES, METADATA_VERSION
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.metadata.snapshot import decode_checkpoint, encode_checkpoint
from metadata_quorum.security.scram import (
    BY_SASL_NAME,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    derive,
    salted,
)

FILE_NAME: Final = "bootstrap.checkpoint"

_ARGUMENT: Final = re.compile(r"(?P<mechanism>[^=]+)=\[(?P<fields>.*)\]")
_FIELD: Final = re.compile(r'(?P<name>\w+)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^",]*))(?:,|$)')
_FIELDS: Final = {"name", "password", "saltedpassword", "salt", "iterations"}


def parse_user(argument: str, rng: random.Random) -> UserScramCredentialRecord:
    """SCRAM-SHA-256=[name=alice,password=...] with iterations=N and salt="BASE64" optional, or
    saltedpassword="BASE64" in place of the password. Raises `FatalError`."""
    parts = _ARGUMENT.fullmatch(argument)
    if parts is None or parts["mechanism"] not in BY_SASL_NAME:
        _reject(f"begins with one of {', '.join(BY_SASL_NAME)}, then =[name=...,password=...]")
    mechanism = BY_SASL_NAME[parts["mechanism"]]
    fields = _fields(parts["fields"])
    name = fields.get("name")
    if not name:
        _reject("needs name=")
    if ("password" in fields) == ("saltedpassword" in fields):
        _reject(f"needs either password= or saltedpassword= for {name}")
    if "saltedpassword" in fields and "salt" not in fields:
        _reject(f"needs salt= beside saltedpassword= for {name}")
    iterations = fields.get("iterations", str(MIN_ITERATIONS))
    if not iterations.isdecimal() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        _reject(f"iterations={iterations} is not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    salt = _base64(fields["salt"]) if "salt" in fields else rng.randbytes(SALT_BYTES)
    if "password" in fields:
        salted_password = salted(mechanism, fields["password"], salt, int(iterations))
    else:
        salted_password = _base64(fields["saltedpassword"])
    return derive(name, mechanism, salted_password, salt, int(iterations))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        field = _FIELD.match(text, position)
        if field is None or field["name"] not in _FIELDS or field["name"] in fields:
            _reject(f"takes each of {', '.join(sorted(_FIELDS))} once, as NAME=VALUE, apart by commas")
        fields[field["name"]] = field["plain"] if field["quoted"] is None else field["quoted"]
        position = field.end()
    return fields


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        _reject("salt= and saltedpassword= are base64")


def _reject(rule: str) -> NoReturn:
    """The message does not quote the argument: it holds a password. Raises FatalError."""
    raise FatalError(ExitCode.BAD_CONFIG, f"--add-scram {rule}")


def write_users(disk: Disk, config: Config, users: Sequence[UserScramCredentialRecord]) -> None:
    """Raises `OSError`."""
    image = MetadataImage(
        features={METADATA_VERSION: BOOTSTRAP_FEATURES[METADATA_VERSION]},
        scram={(each.name, each.mechanism): each for each in users},
    )
    disk.write_atomic(_path(config), encode_checkpoint(image), NOT_SERVING)


def read_users(disk: Disk, config: Config) -> tuple[UserScramCredentialRecord, ...]:
    """Empty where there is no such file. Raises `FatalError` where it is damaged."""
    path = _path(config)
    if not disk.exists(path):
        return ()
    try:
        return tuple(decode_checkpoint(disk.read_bytes(path, NOT_SERVING), 0, 0).scram.values())
    except (OSError, ValueError) as error:
        raise FatalError(ExitCode.LOG_DIR_UNUSABLE, f"cannot read {path}: {error}") from None


def _path(config: Config) -> str:
    return f"{config.metadata_dir}/{FILE_NAME}"
