"""Why a node gave no answer, in words that go on after its name.

Beside errors.py, which every command imports: this knows the client's connections.
"""

from __future__ import annotations

import ssl


def silence_of(error: Exception) -> str:
    """Why a node gave no answer, to go on after its name."""
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(error, TimeoutError):
        return "does not answer"
    from kraft.net.connection_security import LoginRefused  # with the codec, which takes a while to import

    if isinstance(error, ssl.SSLError):
        return f"fails at TLS: {error.strerror or error}"
    if isinstance(error, LoginRefused):
        return f"refused the credentials: {error} (SASL_AUTHENTICATION_FAILED)"
    if isinstance(error, OSError):
        return f"cannot be reached ({error.strerror or error})"
    return f"answers what we do not understand ({error})"
