"""A TLS context that may be replaced while it is in use, when certificates are renewed.

    files -> a new context, beside the loop -> RenewableTls.context -> every handshake from then on

One that is in use is never changed: OpenSSL copies keys and certificates from it as a handshake begins,
without a lock. A key that another thread was reading into it ended handshakes, and the process with them.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(slots=True)
class RenewableTls:
    """Of one listener, or of the connections to one."""

    context: ssl.SSLContext
    """Kafka: SslFactory.sslEngineFactory."""
