"""Whom SCRAM lets in: what committed metadata keeps of passwords, and before there is any, what
`kraft storage format --add-scram` has left.

    state machine or follower -> take(delta, image) -> find(user, mechanism) -> net/scram.py

Nodes of a quorum must log in to each other before they can commit anything: so each starts with the users of
its bootstrap file, and forgets them with the first metadata that it sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.security.scram import Decoys, ScramMechanism, decoy_secret_of


class ScramUsers:
    """The SCRAM users that one node lets in."""

    def __init__(self, bootstrap: Sequence[UserScramCredentialRecord]) -> None:
        self._known: Mapping[tuple[str, int], UserScramCredentialRecord] = {
            (each.name, each.mechanism): each for each in bootstrap
        }
        # Until the cluster's own secret is known, one that this node has after a restart too. A cluster
        # without users has none that a decoy could be told apart from.
        self._secret = b"".join(each.stored_key + each.server_key for each in bootstrap) or b"nobody"
        self._decoys = Decoys(self._secret, bootstrap)

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The next image."""
        if not image.features:  # the bootstrap records are not in it yet
            return
        secret = decoy_secret_of(image) or self._secret
        if image.scram is not self._known or secret != self._secret:
            self._known, self._secret = image.scram, secret
            self._decoys = Decoys(secret, image.scram.values())

    def find(self, user: str, mechanism: ScramMechanism) -> UserScramCredentialRecord | None:
        return self._known.get((user, int(mechanism)))

    def decoy(self, user: str, mechanism: ScramMechanism) -> UserScramCredentialRecord:
        """The salt and iterations that a login under an unknown name gets."""
        return self._decoys.of(user, mechanism)
