"""What request handlers remember about a connection between its requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType

from kraft.net.sasl import Exchange
from metadata_quorum.controller.broker_sessions import Link


class InOrder:
    """Held by one request after the other, in the order in which they came.

    `asyncio.Lock` says that it is free once one lets go, until the next one, which waits, goes on: who looks
    in between would overtake it."""

    __slots__ = ("_inside", "_lock")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._inside = 0

    @property
    def is_free(self) -> bool:
        """Nobody holds it, and nobody waits for it."""
        return not self._inside

    async def __aenter__(self) -> None:
        self._inside += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._inside -= 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        self._lock.release()


@dataclass(slots=True, eq=False)
class ConnectionState:
    """Lives as long as the connection. Each field is written by one API, named beside it."""

    number: int = field(default_factory=count().__next__)
    """Of all connections: the newer, the higher."""

    client_software_name: str = ""  # ApiVersions
    client_software_version: str = ""  # ApiVersions

    fetch_session_id: int | None = None
    """Fetch: the incremental session of this connection; dropped when it closes."""

    last_queued_produce: asyncio.Future[None] | None = None
    """Produce: done when the last queued request has been appended or refused; later ones wait for it."""

    long_commits: InOrder | None = None
    """OffsetCommit, AddPartitionsToTxn: held by a request of many partitions, which waits for its turn or is
    done in pieces. TxnOffsetCommit: by each, for the transaction's coordinator may have to be asked.
    OffsetDelete: by each, which waits for its turn. Others wait, and what must find it done
    (`earlier_commits`)."""

    heartbeats_of: Link | None = None
    """BrokerHeartbeat: the broker whose heartbeats arrive here, and its broker epoch; a broken connection
    means that it has died."""

    sasl_exchange: Exchange | None = None
    """SaslHandshake: the login in progress."""
    sasl_login: tuple[str, str] | None = None
    """SaslAuthenticate: mechanism and user of the first login; a later one must repeat them."""
    sasl_failed: bool = False
    """SaslAuthenticate: a login has failed; no other is allowed."""
    sasl_expiry: asyncio.Future[None] | None = None
    """SaslAuthenticate: key in `Peer.parked` of the timer that ends the login."""

    def behind_commits(self) -> InOrder:
        """To be held by what must be carried out in order with `long_commits`."""
        if self.long_commits is None:
            self.long_commits = InOrder()
        return self.long_commits

    @property
    def are_commits_ahead(self) -> bool:
        """Whether some came before on this connection that are not carried out yet."""
        return self.long_commits is not None and not self.long_commits.is_free

    async def earlier_commits(self) -> None:
        """Wait until those are carried out that came before on this connection."""
        if self.long_commits is not None:
            async with self.long_commits:
                pass
