"""A TLS context that may be replaced while it is in use, when certificates are renewed.

    files -> a new context, beside the loop -> RenewableTls.context -> every handshake from then on

One that is in use is never changed: OpenSSL copies keys and certificates from it as a handshake begins,
without a lock. A key that another thread was reading into it ended handshakes, and the process with them.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

JAVA_TRUSTS: Final = ssl.VERIFY_X509_PARTIAL_CHAIN
"""Whatever is in the truststore, an authority in the middle of a chain too; so does Python from 3.13 on."""
JAVA_ASKS_NOT: Final = ssl.VERIFY_X509_STRICT
"""For extensions that RFC 5280 wants and many companies' authorities have not; Python from 3.13 on asks."""


@dataclass(slots=True)
class RenewableTls:
    """Of one listener, or of the connections to one."""

    context: ssl.SSLContext
    """Kafka: SslFactory.sslEngineFactory."""
    said_at: dict[str, float] = field(default_factory=dict)
    """When the log has said that we do not agree with that address."""


def new_context(
    purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH,
    *,
    cafile: str | None = None,
    capath: str | None = None,
    cadata: str | None = None,
) -> ssl.SSLContext:
    """As Python's own, but whom it trusts does not depend on Python's version: a truststore means what it
    means to Apache Kafka. Raises `OSError` for files that cannot be read or are no PEM."""
    context = ssl.create_default_context(purpose, cafile=cafile, capath=capath, cadata=cadata)
    context.verify_flags = (context.verify_flags | JAVA_TRUSTS) & ~JAVA_ASKS_NOT
    return context


def what_failed(error: ssl.SSLError) -> str:
    """In words, where OpenSSL has some."""
    found = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error.reason
    return str(found or error)


def check_agreement(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """A handshake between the two, in memory. Raises `ssl.SSLError` where one does not accept the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for end in ends * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
