"""What request handlers remember about a connection between its requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kraft.net.sasl import Exchange
from metadata_quorum.controller.broker_sessions import Link


@dataclass(slots=True, eq=False)
class ConnectionState:
    """Lives as long as the connection. Each field is written by one API, named beside it."""

    client_software_name: str = ""  # ApiVersions
    client_software_version: str = ""  # ApiVersions

    fetch_session_id: int | None = None
    """Fetch: the incremental session of this connection; dropped when it closes."""

    last_queued_produce: asyncio.Future[None] | None = None
    """Produce: done when the last queued request has been appended or refused; later ones wait for it."""

    long_commits: asyncio.Lock | None = None
    """OffsetCommit, AddPartitionsToTxn: held by a request of many partitions, which waits for its turn or is
    done in pieces. TxnOffsetCommit: by each, for the transaction's coordinator may have to be asked. Others
    wait, and what must find it done (`earlier_commits`)."""

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

    async def earlier_commits(self) -> None:
        """Wait until those are carried out that came before on this connection."""
        if self.long_commits is not None:
            async with self.long_commits:
                pass
