"""Why a node gave no answer, in words that go on after its name.

Beside errors.py, which every command imports: this knows the client's connections.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


def silence_of(error: Exception) -> str:
    """Why a node gave no answer, to go on after its name."""
    if isinstance(error, socket.gaierror):
        return "is not the name of a host"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(error, TimeoutError):
        return "does not answer"
    # With the codec, which takes a while to import.
    from kraft.net.broken_protocol import BrokenProtocol
    from kraft.net.client import UnsupportedVersion
    from kraft.net.connection_security import PLAINTEXT, LoginRefused
    from kraft.peers.blocking_client import SECURITY

    wants = "want TLS or a login (--command-config), or speak another protocol"
    wants = wants if SECURITY.get() is PLAINTEXT else "not speak TLS, or not want a login"
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return "does not speak TLS"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that we do not trust: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"fails at TLS: {error.strerror or error}"
    if isinstance(error, LoginRefused):
        return f"refused the credentials: {error} (SASL_AUTHENTICATION_FAILED)"
    if isinstance(error, BrokenProtocol):
        return f"does not answer as a broker ({error}): it may {wants}"
    if isinstance(error, ConnectionResetError):
        return f"closes the connection: it may {wants}"
    if isinstance(error, UnsupportedVersion):
        return f"is no broker that we can ask: {error}"
    if isinstance(error, OSError):
        return f"cannot be reached ({error.strerror or error})"
    return f"answers what we do not understand ({error})"
