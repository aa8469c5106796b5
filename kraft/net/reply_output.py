"""Sends one connection's replies to its socket, and counts what the other end has not read.

    Pipeline.take_output -> ReplyOutput -> transport, all that may leave with one write
                                        -> FileSend -> transport, in pieces, as the socket takes them

What the other end has not read counts toward the node's total (unread.py), which decides whether more may be
started for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from kraft.net.connection import BytesLike, Pipeline, ProtocolError
from kraft.net.connection_services import ConnectionServices
from kraft.net.file_send import FileSend
from metadata_quorum.foundation.file_region import Piece

COUNTED_FROM_BYTES: Final = 16 * 1024
"""Fewer bytes than this that the socket does not take, or that wait for an earlier reply, are not counted."""

Output = list[BytesLike]


class ReplyOutput:
    """The replies of one connection that may leave, until its socket has taken them."""

    __slots__ = (
        "_ever_sent_bytes",
        "_is_closed",
        "_on_error",
        "_on_sent",
        "_pipeline",
        "_reads_file",
        "_seen",
        "_sending",
        "_services",
        "_since_drained_bytes",
        "_transport",
        "_unread_bytes",
        "is_paused",
        "last_sent",
    )

    def __init__(
        self,
        services: ConnectionServices,
        pipeline: Pipeline,
        transport: asyncio.Transport,
        on_sent: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """`on_sent`: called when a reply with parts in files has been sent, and when the socket takes more:
        further requests may be started. `on_error`: the connection cannot go on."""
        self._services = services
        self._pipeline = pipeline
        self._transport = transport
        self._on_sent = on_sent
        self._on_error = on_error
        self._sending: FileSend | None = None
        """Replies of which a part is still in files: later ones wait."""
        self._reads_file = False
        self.is_paused = False
        """The socket takes no more."""
        self._since_drained_bytes = 0
        self._ever_sent_bytes = 0
        self._unread_bytes = 0
        """What `unread` counts for this connection."""
        self._seen: tuple[int, int] | None = None
        """At the last `has_not_moved`, the bytes sent so far and those in the transport's buffer; None if
        that was empty."""
        self.last_sent = 0.0
        self._is_closed = False

    def flush(self) -> bool:
        """Send the replies whose turn it is. Returns whether there were any, and all of them have left."""
        pipeline = self._pipeline
        if self._sending is not None:
            self.count_unread()
            return False
        size = pipeline.reply_bytes
        output = pipeline.take_output()
        if not output or self._transport.is_closing():
            self._count_sent()
            if size >= COUNTED_FROM_BYTES:  # they wait for an earlier one
                self.count_unread()
            return False
        if pipeline.leaves_files:
            self._sending = FileSend(output)
            self._send_on()
            return self._sending is None
        self._write(cast(Output, output), size - pipeline.reply_bytes)
        self._count_sent()
        if self.is_paused or self._unread_bytes:
            self.count_unread()
        return True

    def pause(self) -> None:
        """The socket takes no more."""
        self.is_paused = True
        self.count_unread()

    def resume(self) -> None:
        """The socket has taken what it was given."""
        self.is_paused = False
        self._since_drained_bytes = 0
        self.count_unread()
        if self._sending is not None:
            self.send_on()
        else:
            self._on_sent()

    def close(self) -> None:
        """The connection is gone."""
        self._sending = None
        self._on_sent, self._on_error = _nothing_more, _nothing_more  # which refer to the connection
        self._services.unread.held_bytes -= self._unread_bytes
        self._unread_bytes = 0
        self._is_closed = True

    def has_not_moved(self, now: float) -> bool:
        """Whether the other end has read none of its replies since the last call."""
        left = self._transport.get_write_buffer_size()
        before, seen = self._seen, (self._ever_sent_bytes, left) if left else None
        self._seen = seen
        if before is not None and seen != before:
            self.last_sent = now
        return before is not None and seen == before

    def send_on(self) -> None:
        """Continue with what is in files."""
        self._send_on()
        if self._sending is None:
            self._on_sent()

    def _send_on(self) -> None:
        """Send piece by piece, as far as the socket takes them. Continues in a later turn of the loop:
        when the socket has room, the turn budget has time, or the device has delivered."""
        try:
            while self._sending is not None and not self.is_paused and not self._reads_file:
                if not self._services.turn_budget.may_continue(self.send_on):
                    break
                self._send_piece(self._sending)
        except Exception as error:  # noqa: BLE001
            self._on_error(error)
        self.count_unread()

    def _send_piece(self, sending: FileSend) -> None:
        most = self._services.unread.piece_bytes()
        output = sending.take(most)
        if output:
            self._sent(sending, output)
        else:
            self._reads_file = True
            sending.read(most).add_done_callback(self._file_read)

    def _sent(self, sending: FileSend, output: Output) -> None:
        self._write(output, sum(map(len, output)))
        if sending.done:
            self._sending = None
            self._count_sent()

    def _file_read(self, done: asyncio.Future[Piece]) -> None:
        self._reads_file = False
        sending = self._sending
        if sending is None or self._transport.is_closing() or done.cancelled():
            return
        try:
            piece = done.result()
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest cannot be sent
            sending.failed(error)
            self._on_error(ProtocolError(f"its records cannot be read: {error}"))
            return
        try:
            sending.came(piece)
            self._sent(sending, [piece])
        except Exception as error:  # noqa: BLE001
            self._on_error(error)
            return
        self.send_on()

    def _write(self, output: Output, size: int) -> None:
        self.last_sent = self._services.loop.time()
        self._ever_sent_bytes += size
        self._since_drained_bytes = self._since_drained_bytes + size if self.is_paused else size
        if len(output) == 1:
            self._transport.write(output[0])
        else:
            self._transport.writelines(output)

    def _count_sent(self) -> None:
        if self._pipeline.leaving:
            for timing in self._pipeline.leaving:
                timing.sent()
            self._pipeline.leaving.clear()

    def count_unread(self) -> None:
        """Bring the count of unread bytes up to date, and with it whether more may be started. A buffer
        counts until the socket has taken all of it. Other clients' reading changes nothing here: a connection
        that is blocked stays so until it reads on itself, or an earlier reply comes."""
        if self._is_closed:
            return
        size = self._pipeline.reply_bytes
        if self.is_paused:
            size += self._since_drained_bytes
        if size < COUNTED_FROM_BYTES:
            size = 0
        unread = self._services.unread
        unread.held_bytes += size - self._unread_bytes
        self._unread_bytes = size
        self._pipeline.output_blocked = self._sending is not None or not unread.may_add_to(size)


def _nothing_more(error: Exception | None = None) -> None:
    """In the place of callbacks of a closed connection."""
