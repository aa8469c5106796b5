"""Whom SCRAM lets in: what committed metadata keeps of passwords, and before there is any, what
`kraft storage format --add-scram` has left.

    state machine or follower -> take(delta, image) -> find(user, mechanism) -> net/scram.py

Nodes of a quorum must log in to each other before they can commit anything: so each starts with the users of
its bootstrap file, and forgets them with the first metadata that it sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from metadata_quorum.image import MetadataDelta, MetadataImage
from metadata_quorum.records import UserScramCredentialRecord
from metadata_quorum.scram import ScramMechanism

DECOY_SECRET_BYTES: Final = 32


class ScramUsers:
    """Of one node."""

    def __init__(self, bootstrap: Sequence[UserScramCredentialRecord], decoy_secret: bytes) -> None:
        self._known: Mapping[tuple[str, int], UserScramCredentialRecord] = {
            (each.name, each.mechanism): each for each in bootstrap
        }
        self.decoy_secret = decoy_secret
        """What the salts of unknown users are made from."""

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The next image."""
        if image.features:  # else the bootstrap records are not in it yet
            self._known = image.scram

    def find(self, user: str, mechanism: ScramMechanism) -> UserScramCredentialRecord | None:
        return self._known.get((user, int(mechanism)))
