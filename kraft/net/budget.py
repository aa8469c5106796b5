"""What many connections together may hold in frames that arrive and in requests without reply.

FrameReader, Pipeline -> Account, a connection's part -> Budget, a listener's (server_memory.py)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Budget:
    """What many connections together may hold in requests without reply.

    Small requests are always admitted, so that heartbeats flow; a large one waits, at its beginning and
    whenever its buffer must grow, until less than the budget is used. If the whole budget were used by
    unfinished frames, all connections would wait for each other: so one connection at a time may exceed the
    budget until its request is served (as much as that frame is given back), and the whole may exceed it by
    one large frame.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.plenty_bytes = max_bytes // 8
        """As long as less is used, clients may send as much at once as they like."""
        self.used_bytes = 0
        self._exceeding: Account | None = None
        self._exceeding_bytes = 0
        """Of its frame, when it began to exceed."""
        self._before_frame: deque[Callable[[], None]] = deque()
        self._inside_frame: deque[Callable[[], None]] = deque()

    @property
    def exhausted(self) -> bool:
        return self.used_bytes >= self.max_bytes

    def may_continue(self, account: Account, frame_bytes: int) -> bool:
        """Whether that connection, which holds so much of a frame, may take more for it."""
        if self.exhausted and self._exceeding is None:
            self._exceeding, self._exceeding_bytes = account, frame_bytes
        return not self.exhausted or self._exceeding is account

    def take(self, size: int) -> None:
        self.used_bytes += size

    def give_back(self, size: int, account: Account) -> None:
        self.used_bytes -= size
        if self._exceeding is account and size >= self._exceeding_bytes:
            self._exceeding = None
        while self._inside_frame and (self._exceeding is None or not self.exhausted):
            self._inside_frame.popleft()()
        while self._before_frame and not self.exhausted:
            self._before_frame.popleft()()

    def wait(self, wake: Callable[[], None], *, inside_frame: bool) -> None:
        """Call `wake` once when there may be room again."""
        (self._inside_frame if inside_frame else self._before_frame).append(wake)


class Account:
    """One connection's part of a budget: frames that arrive, and requests without reply."""

    __slots__ = ("budget", "held_bytes")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.held_bytes = 0

    def take(self, size: int) -> None:
        self.held_bytes += size
        self.budget.take(size)

    def give_back(self, size: int) -> None:
        self.held_bytes -= size
        self.budget.give_back(size, self)

    def move_to(self, budget: Budget) -> None:
        """Count all of it in another budget from now on."""
        held = self.held_bytes
        self.give_back(held)
        self.budget = budget
        self.take(held)
