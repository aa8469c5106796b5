"""Until when a node's certificates are good: a metric, and once a day a line in the log.

PEM file -> end_of -> NodeSecurity.certificate_ends -> CertificateWatch -> log
                                                   `-> GET /metrics
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from kraft.node.certificate_fields import good_until
from metadata_quorum.foundation.supervision import ended, restarted

log = logging.getLogger(__name__)

WARNED_DAYS: Final = 30
"""As early as `kraft doctor` warns."""

_DAY_S: Final = 86_400
_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def end_of(pem: str) -> int | None:
    """When the first of a chain's certificates ends, in seconds since 1970; None where nobody can tell."""
    try:
        ends = [good_until(ssl.PEM_cert_to_DER_cert(each)) for each in _CERTIFICATE.findall(pem)]
    except ValueError:
        return None
    return min(ends, default=None)


def day_of(end: int) -> str:
    """In UTC."""
    return datetime.fromtimestamp(end, UTC).date().isoformat()


class CertificateWatch:
    """Says every day which certificates end soon."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int], ends: Mapping[str, int]
    ) -> None:
        """`ends`: by listener; of certificates that are renewed it changes."""
        self._loop = loop
        self._now_ms = now_ms
        self._ends = ends
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._ends:
            self._task = restarted(self._loop, self._watch, "the ends of certificates")

    async def close(self) -> None:
        await ended(self._task)

    async def _watch(self) -> None:
        while True:
            for listener, end in sorted(self._ends.items()):
                days = (end - self._now_ms() // 1000) // _DAY_S
                if days < 0:
                    log.error("the certificate for %s ended on %s", listener, day_of(end))
                elif days < WARNED_DAYS:
                    log.warning("the certificate for %s ends on %s, in %d days", listener, day_of(end), days)
            await asyncio.sleep(_DAY_S)
