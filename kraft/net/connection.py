"""One connection's framing, order and limits, without any I/O.

    bytes -> FrameReader -> frames -> Pipeline.next_frame -> (a handler) -> Slot
    bytes <-------------------------- Pipeline.take_output <- replies, in the order of the requests

Requests run as they arrive; a reply that is ready early waits in its slot until all before it have
left. What a client may make us hold is bounded: by the length of a frame, which is checked before the
frame is read; by the bytes and the number of requests without reply; and by replies it does not read.
Beyond a bound nothing more is started, and nothing more is read from that connection.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraft.monitoring.request_metrics import Phase, RequestTiming
from kraft.net.budget import Account
from kraft.net.room import Room, grown
from metadata_quorum.foundation.file_region import FileRegion

_LENGTH: Final = struct.Struct(">i")

SCRATCH_BYTES: Final = 256 * 1024
"""What one read takes at most, unless it is into a buffer of the whole frame's size."""

SCARCE_BYTES: Final = 4 * 1024
"""What one read takes at most when an eighth of the budget is used up: small frames are always admitted, but
not many at once."""

NO_API: Final = -1
"""The API key of a frame that is too short to have one."""

SMALL_FRAME_BYTES: Final = 64 * 1024
"""Up to here a frame never waits for the node's budget."""

FIRST_BUFFER_BYTES: Final = 2 * 1024 * 1024
"""A frame up to here is received into one buffer of its size. A larger one gets as much as one read takes,
and more as its bytes arrive: a length of 100 MB alone reserves nothing like that, and costs no time."""

CUT_AT_ONCE: Final = 32
"""Frames: a read of `SCRATCH_BYTES` may hold fifty thousand, and a frame that is cut off takes 400 bytes
more."""

BytesLike = bytes | bytearray | memoryview
Buffers = Sequence[BytesLike | FileRegion]
"""The buffers of a reply, in order."""

Allocate = Callable[[int], bytearray | memoryview | Room]
"""Makes a writable buffer of that many bytes, with any contents."""


class ProtocolError(Exception):
    """The other end broke the protocol: its connection is closed, and this sentence logged."""


class FrameProgress(NamedTuple):
    """How much has arrived of the frame that is being received."""

    frame: int
    """The number of the frame on its connection."""
    came_bytes: int
    held_bytes: int
    """The size of its buffer."""


class FrameReader:
    """Cuts a byte stream into frames: int32 length, then that many bytes.

    Every frame is a writable buffer of its own, so its receiver may keep it or change it. Small frames
    are copied out of the scratch buffer, which all connections share (its contents never outlive one
    call of `received`); a frame that has not arrived yet is received where it will stay. What is held
    is what has arrived, or at most twice that: a length alone takes little of the budget.
    """

    def __init__(
        self,
        max_frame_bytes: int,
        scratch: memoryview,
        account: Account,
        *,
        first_buffer_bytes: int = FIRST_BUFFER_BYTES,
        allocate: Allocate = bytearray,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._first_buffer_bytes = first_buffer_bytes
        self._first_piece_bytes = min(first_buffer_bytes, SCRATCH_BYTES)
        self._allocate = allocate
        self._scratch = scratch
        self._account = account
        self._rest: bytes | memoryview = b""
        """Bytes received behind the last frame cut: part of a length, or more frames."""
        self._more = False
        self._frame: bytearray | memoryview | Room | None = None
        self._frame_bytes = 0
        self._held_bytes = 0  # of the budget, by the current frame: its buffer, or what that is about to be
        self._filled = 0
        self._begun = 0
        self._is_fed = False
        """Whether the current frame has a buffer."""
        self.is_large = False
        """Whether the current frame is longer than `SMALL_FRAME_BYTES`."""
        self.needs_budget = False
        """The budget has no room for the current frame: read again once `resume` returns True."""

    @property
    def progress(self) -> FrameProgress | None:
        """None between frames."""
        return None if self._frame is None else FrameProgress(self._begun, self._filled, self._held_bytes)

    @property
    def api_key(self) -> int:
        """The API of the current frame, if that is known already."""
        return NO_API if self._frame is None or self._filled < 2 else _api_key_of(self._frame)

    def get_buffer(self) -> memoryview:
        """The buffer in which the next bytes are received."""
        if self._frame is None:
            budget = self._account.budget
            if budget.used_bytes <= budget.plenty_bytes:
                return self._scratch
            return self._scratch[:SCARCE_BYTES]
        if self._filled == len(self._frame):
            if self._held_bytes == len(self._frame):
                self._take_more()
            self._frame = grown(self._frame, self._held_bytes)
        if isinstance(self._frame, Room):
            return memoryview(self._frame)[self._filled : self._filled + SCRATCH_BYTES]
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> Sequence[memoryview]:
        """The frames that the `count` bytes just received have completed. Raises `ProtocolError` for an
        invalid length."""
        if self._frame is None:
            return self._cut(self._take(count))
        self._filled += count
        if self._filled == self._frame_bytes:
            frame, self._frame = self._frame, None
            self.needs_budget = self.is_large = False
            return (memoryview(frame),)
        if self._filled == len(self._frame):
            self.needs_budget = not self._account.budget.may_continue(self._account, self._filled)
        return ()

    def cut_on(self) -> Sequence[memoryview]:
        """Further frames that have arrived already: at most `CUT_AT_ONCE` are cut off at a time."""
        if not self._more:
            return ()
        return self._cut(self._take(0))

    def resume(self) -> bool:
        """Whether the frame that waits for the budget may be read now; if so it takes its part, at once."""
        if self.needs_budget:
            budget = self._account.budget
            may = budget.may_continue(self._account, self._filled) if self._is_fed else not budget.exhausted
            if may:
                self._is_fed, self.needs_budget = True, False
                self._take_more()
        return not self.needs_budget

    def hold_up(self) -> None:
        """Nothing is read for now: others may have the room that a large frame has got and not filled."""
        if self._frame is not None and self.is_large and self._held_bytes > 2 * self._filled:
            self._frame = bytearray(memoryview(self._frame)[: self._filled])
            spare, self._held_bytes = self._held_bytes - self._filled, self._filled
            self.needs_budget = True
            self._account.give_back(spare)

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when `resume` may return True."""
        self._account.budget.wait(wake, inside_frame=self._is_fed)

    def close(self) -> None:
        """Give back what an unfinished frame has taken."""
        if self._frame is not None:
            self._account.give_back(self._held_bytes)
        self._frame = None
        self.is_large = False
        self._take(0)

    def _take(self, count: int) -> memoryview:
        if not self._rest:
            return self._scratch[:count]
        if self._more:
            self._account.give_back(len(self._rest))
            self._more = False
        rest = self._rest
        self._rest = b""
        return memoryview(b"".join((rest, self._scratch[:count])) if count else rest)

    def _cut(self, data: memoryview) -> list[memoryview]:
        frames: list[memoryview] = []
        pos, end = 0, len(data)
        taken = 0
        while end - pos >= _LENGTH.size and len(frames) < CUT_AT_ONCE:
            (length,) = _LENGTH.unpack_from(data, pos)
            if not 0 < length <= self.max_frame_bytes:
                raise ProtocolError(f"a frame of {length} bytes; allowed are 1 to {self.max_frame_bytes}")
            start = pos + _LENGTH.size
            if start + length > end:
                self._begin(length, data[start:])  # first: where it fails, the frames are nobody's
                self._account.take(taken)
                return frames
            pos = start + length
            taken += length
            frames.append(memoryview(bytearray(data[start:pos])))
        self._rest = self._kept(data[pos:])
        self._more = len(frames) == CUT_AT_ONCE and len(self._rest) >= _LENGTH.size
        self._account.take(taken + len(self._rest) if self._more else taken)
        return frames

    def _kept(self, rest: memoryview) -> bytes | memoryview:
        """A copy, unless `rest` is at least half of a buffer of its own: nothing may refer to the scratch
        buffer, and a little may not hold much."""
        whole = rest.obj
        is_own = isinstance(whole, bytes) and len(rest) * 2 >= len(whole)
        return rest if is_own else bytes(rest)

    def _begin(self, length: int, first: memoryview) -> None:
        self._begun += 1
        self._frame_bytes = length
        self._filled = len(first)
        self.is_large = length > SMALL_FRAME_BYTES
        self.needs_budget = self.is_large and self._account.budget.exhausted
        self._is_fed = not self.needs_budget
        if self.needs_budget:
            self._frame = bytearray(first)
        elif length <= self._first_buffer_bytes:
            self._frame = self._allocate(length)
        else:
            self._frame = self._allocate(max(self._first_piece_bytes, len(first)))
        self._frame[: len(first)] = first
        self._held_bytes = len(self._frame)
        self._account.take(self._held_bytes)

    def _take_more(self) -> None:
        more = min(max(self._held_bytes, self._first_buffer_bytes), self._frame_bytes - self._held_bytes)
        self._held_bytes += more
        self._account.take(more)


def _api_key_of(frame: bytearray | memoryview | Room) -> int:
    """The API of a frame whose first two bytes at least have come."""
    return frame[0] << 8 | frame[1]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may make us hold."""

    max_frame_bytes: int = 100 * 1024 * 1024
    """socket.request.max.bytes"""
    max_frame_bytes_before_login: int = 512 * 1024
    """sasl.server.max.receive.size"""
    max_in_flight_bytes: int = 32 * 1024 * 1024
    """One more request may be started while neither the unanswered requests, nor the replies that wait for an
    earlier one, have reached this."""
    max_in_flight_requests: int = 4096
    max_in_flight_tasks: int = 8
    """Requests that continue in tasks, which take kilobytes each however small the request. Only on listeners
    for clients."""


def _nothing() -> None:
    pass


class Slot:
    """The place of one reply in the order of its connection."""

    __slots__ = (
        "api_key",
        "exclusive",
        "from_files",
        "in_task",
        "reply",
        "reply_bytes",
        "request_bytes",
        "timing",
    )

    def __init__(self, api_key: int, request_bytes: int, exclusive: bool) -> None:
        self.api_key = api_key
        self.request_bytes = request_bytes
        self.exclusive = exclusive
        self.in_task = False
        """Whether it was not answered at once, but continues in a task."""
        self.reply: Buffers | None = None
        self.reply_bytes = 0
        """The part of the reply that is in memory."""
        self.from_files = False
        """Whether a part of the reply is in files."""
        self.timing: RequestTiming | None = None
        """Set if the request is timed."""


class Pipeline:
    """Requests of one connection: which may start, and which replies may leave.

    `is_exclusive(api_key)` is true for requests whose replies may be large (Fetch): only one of them runs at
    a time, and requests behind a waiting one wait too. `is_in_turn(api_key)` is true for requests that start
    only when all before them are answered, because their replies quickly become stale (Metadata).
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        account: Account,
        is_exclusive: Callable[[int], bool],
        is_in_turn: Callable[[int], bool] = lambda api_key: False,
        *,
        more: Callable[[], Iterable[memoryview]] = tuple,
        overtaken: Callable[[], None] = _nothing,
    ) -> None:
        """`more`: called for further frames when all have been started (`FrameReader.cut_on`). `overtaken`:
        called when an exclusive request comes behind another one, which may be answered in that call."""
        self._more = more
        self._overtaken = overtaken
        self._limits = limits
        self._account = account
        self._is_exclusive = is_exclusive
        self._is_in_turn = is_in_turn
        self.queued: deque[memoryview] = deque()
        """Complete requests that have not been started."""
        self._slots: deque[Slot] = deque()
        self._running_bytes = 0
        self.reply_bytes = 0
        self.has_files = False
        """Whether a reply since the last `take_output` is partly in files."""
        self.leaves_files = False
        """Whether what the last `take_output` returned is partly in files."""
        self._kept: dict[Slot, int] = {}
        """Bytes of frames that whoever serves them has, also when the connection has gone."""
        self._exclusive_running = False
        self._tasks = 0
        self._paused: Slot | None = None
        self._first: Slot | None = None
        self._closed = False
        self.output_blocked = False
        """Set while the other end does not read what we sent."""
        self.leaving: list[RequestTiming] = []
        """Timed requests whose replies were taken for output, but have not been written."""
        self.muted = False
        """Set while the other end is over a quota: nothing more is started for it."""

    @property
    def wants_input(self) -> bool:
        """Whether more should be read from the connection."""
        return not self.queued and self._may_start()

    @property
    def idle(self) -> bool:
        """Whether no request is running, and none is queued but behind a quota: that pause may be days."""
        return not self._slots and (self.muted or not self.queued)

    @property
    def waiting_replies(self) -> int:
        """Replies that wait for an earlier one."""
        return sum(slot.reply is not None for slot in self._slots)

    def enqueue(self, frames: Iterable[memoryview]) -> None:
        """Complete frames; the account has counted them already."""
        self.queued.extend(frames)

    def next_frame(self) -> tuple[memoryview, Slot] | None:
        """The next request that may be started now, with the slot for its reply."""
        if not self.queued:
            self.queued.extend(self._more())
        if not self.queued or self._first is not None or not self._may_start():
            return None
        frame = self.queued[0]
        api_key = _api_key_of(frame) if len(frame) > 1 else NO_API
        if self._slots and self._is_in_turn(api_key):
            return None
        exclusive = self._is_exclusive(api_key)
        if exclusive and self._exclusive_running:
            self._overtaken()
            if self._exclusive_running:
                return None
        self.queued.popleft()
        slot = Slot(api_key, len(frame), exclusive)
        self._exclusive_running = self._exclusive_running or exclusive
        self._running_bytes += slot.request_bytes
        self._slots.append(slot)
        return frame, slot

    def holds_back(self, api_key: int) -> bool:
        """Whether a request of that API would have to wait for those that are under way."""
        if self._first is not None:
            return True
        if self._exclusive_running and self._is_exclusive(api_key):
            return True
        return bool(self._slots) and self._is_in_turn(api_key)

    def pause(self, slot: Slot) -> None:
        """Read and start nothing more before `resume`, or before that request is done."""
        self._paused = slot

    def resume(self, slot: Slot) -> None:
        if self._paused is slot:
            self._paused = None

    def answer_first(self, slot: Slot) -> None:
        """Start nothing more before that request is done."""
        self._first = slot

    def continues_in_task(self, slot: Slot) -> None:
        """That request was started, but not answered at once."""
        slot.in_task = True
        self._tasks += 1

    def charge(self, slot: Slot, size: int) -> None:
        """Count `size` bytes beyond its frame for a request that has been started."""
        if self._closed or slot.reply is not None:
            return
        slot.request_bytes += size
        self._running_bytes += size
        self._account.take(size)

    def keep(self, slot: Slot) -> None:
        """Its frame stays in memory until `let_go`, even if the connection closes."""
        if not self._closed:
            self._kept[slot] = slot.request_bytes

    def let_go(self, slot: Slot) -> None:
        """Nobody has its frame any longer."""
        size = self._kept.pop(slot, 0)
        if not self._closed:
            if slot.reply is not None:
                return
            slot.request_bytes -= size
            self._running_bytes -= size
        self._account.give_back(size)

    def fill(self, slot: Slot, reply: Buffers) -> None:
        """The request of that slot is done; an empty reply means none (acks=0)."""
        if self._closed:
            return
        slot.reply = reply
        if len(reply) == 1:
            slot.reply_bytes = len(reply[0])
        else:
            for each in reply:
                if isinstance(each, FileRegion):
                    slot.from_files = self.has_files = True
                else:
                    slot.reply_bytes += len(each)
        self.reply_bytes += slot.reply_bytes
        self._running_bytes -= slot.request_bytes
        if slot.exclusive:
            self._exclusive_running = False
        if slot.in_task:
            self._tasks -= 1
            if self._first is slot:
                self._first = None
            if self._paused is slot:
                self._paused = None
        self._account.give_back(slot.request_bytes)

    def take_output(self) -> list[BytesLike | FileRegion]:
        """The buffers of all replies that may leave now."""
        output: list[BytesLike | FileRegion] = []
        self.has_files = self.leaves_files = False
        while self._slots and (reply := self._slots[0].reply) is not None:
            output.extend(reply)
            slot = self._slots.popleft()
            self.reply_bytes -= slot.reply_bytes
            if slot.from_files:
                self.leaves_files = True
            if slot.timing is not None:
                slot.timing.end(Phase.RESPONSE_QUEUE)
                self.leaving.append(slot.timing)
        return output

    def close(self) -> None:
        """The connection is closed: give back what it held, but for frames that somebody has."""
        self._closed = True
        self._overtaken = _nothing  # it refers to the connection
        self._kept = {slot: size for slot, size in self._kept.items() if slot.reply is None}
        held = self._running_bytes + sum(map(len, self.queued)) - sum(self._kept.values())
        self.queued.clear()
        self._slots.clear()
        self._account.give_back(held)

    def _may_start(self) -> bool:
        limit = self._limits.max_in_flight_bytes
        return (
            not self.output_blocked
            and not self.muted
            and self._paused is None
            and self._tasks < self._limits.max_in_flight_tasks
            and self._running_bytes < limit
            and self.reply_bytes < limit
            and len(self._slots) < self._limits.max_in_flight_requests
        )
