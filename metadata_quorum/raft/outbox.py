"""Messages on their way out: none leaves before what it depends on is on the device.

The voter puts messages in while it works; `flush` makes the journal durable once for all of them and
then hands them to the link.
"""

from __future__ import annotations

from uuid import UUID

from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.messages import Message, encode
from metadata_quorum.raft.port import RaftLink


class Outbox:
    """The messages of this voter in one turn."""

    def __init__(self, link: RaftLink, incarnation: UUID, journal: RaftJournal) -> None:
        self.link = link
        self._incarnation = incarnation
        self._journal = journal
        self._messages: list[tuple[int, Message]] = []

    def __bool__(self) -> bool:
        return bool(self._messages)

    def put(self, peer: int, message: Message) -> None:
        self._messages.append((peer, message))

    def flush(self) -> None:
        """One fsync, then all messages; those to one peer keep their order."""
        self._journal.sync()
        messages, self._messages = self._messages, []
        for peer, message in sorted(messages, key=lambda item: item[0]):
            self.link.send(peer, encode(self._incarnation, message))
