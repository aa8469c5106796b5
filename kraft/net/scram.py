"""SCRAM, the server's end (RFC 5802, RFC 7677, without channel binding): two messages in, two responses out.

    n,,n=USER,r=NONCE        -> r=NONCE+OURS,s=SALT,i=ITERATIONS
    c=biws,r=NONCE,p=PROOF   -> v=SIGNATURE, and `user` is set

A login under an unknown name gets the same challenge, with a salt derived from the name, and is refused only
after the proof: neither the response nor its time shows which names exist. The client's end is in
connection_security.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

from kraft.net.connection_security import AuthenticationFailed
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.security.scram import ScramMechanism

FindCredential = Callable[[str, ScramMechanism], UserScramCredentialRecord | None]
DecoyCredential = Callable[[str, ScramMechanism], UserScramCredentialRecord]

# Possessive: what has been taken is never given back, so that a message costs its length once.
_FIRST: Final = re.compile(
    r"(?P<binding>[ny],(?:a=(?P<wanted>[^,]*+))?,)"
    r"(?P<bare>n=(?P<name>(?:[^,=]++|=2C|=3D)*+),r=(?P<nonce>[!-+\--~]++)(?P<extensions>(?:,[A-Za-z]\w*+=[^,]++)*+))"
)
_LAST: Final = re.compile(
    r"(?P<unproved>c=(?P<binding>[^,]++),r=(?P<nonce>[^,]++)(?:,(?!p=)[A-Za-z]\w*+=[^,]++)*+),p=(?P<proof>[^,]++)"
)
_BY_TOKEN: Final = ",tokenauth=true"
"""An extension: the name is that of a delegation token. There are none here."""


class ScramExchange:
    """One login in progress."""

    def __init__(
        self, mechanism: ScramMechanism, find: FindCredential, nonce: str, decoy: DecoyCredential
    ) -> None:
        """`nonce`: random, printable, without commas. `decoy`: the credential that an unknown name gets."""
        self.mechanism = mechanism.sasl_name
        self._numbered = mechanism
        self._hash = mechanism.hash_name
        self._find = find
        self._nonce = nonce
        self._decoy = decoy
        self._name = ""
        self._known = False
        self._credential: UserScramCredentialRecord | None = None
        self._binding = ""
        self._signed = ""
        self.user: str | None = None
        """Who has proved to be; None until then."""

    def step(self, message: bytes) -> bytes:
        """Raises AuthenticationFailed."""
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise self._refusal() from None
        return self._challenge(text) if self._credential is None else self._verdict(text, self._credential)

    def _challenge(self, text: str) -> bytes:
        said = _FIRST.fullmatch(text)
        if said is None or not said["name"]:
            raise self._refusal()
        self._name = _plain(said["name"])
        if said["wanted"] and _plain(said["wanted"]) != self._name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        found = None if _BY_TOKEN in said["extensions"].lower() else self._find(self._name, self._numbered)
        self._known = found is not None
        nobodys = self._decoy(self._name, self._numbered)  # for everybody, that it takes the same time
        self._credential = nobodys if found is None else found
        self._binding = base64.b64encode(said["binding"].encode()).decode()
        self._nonce = said["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{said['bare']},{challenge}"
        return challenge.encode()

    def _verdict(self, text: str, credential: UserScramCredentialRecord) -> bytes:
        said = _LAST.fullmatch(text)
        if said is None or said["nonce"] != self._nonce or said["binding"] != self._binding:
            raise self._refusal()
        signed = f"{self._signed},{said['unproved']}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        try:
            proof = base64.b64decode(said["proof"], validate=True)
            client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
        except ValueError:  # not base64, or of another length
            raise self._refusal() from None
        right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        if not right or not self._known:
            raise self._refusal()
        self.user = self._name
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, self._hash))

    def _refusal(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self.mechanism}"
        )


def _plain(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
