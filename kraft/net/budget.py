"""Bounds what many connections together hold in frames that are arriving and in requests that are not
answered.

FrameReader, Pipeline -> Account, a connection's part -> Budget, a listener's (server_memory.py)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

Waiting = OrderedDict[Callable[[], None], None]
"""Whom to wake, in the order of their coming."""


class Budget:
    """What many connections together may hold in unanswered requests.

    Small requests are always admitted, so that heartbeats get through; a large one waits, at its beginning
    and whenever its buffer must grow, until less than the budget is used. If unfinished frames used up the
    whole budget, all connections would wait for each other. So one connection at a time may exceed the budget
    until its request is served (until as much as its frame took has been given back), and the total may
    exceed the budget by one large frame.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.plenty_bytes = max_bytes // 8
        """While less than this is used, clients may send as much at once as they like."""
        self.used_bytes = 0
        self._exceeding: Account | None = None
        self._exceeding_bytes = 0
        """How much of its frame that connection held when it began to exceed the budget."""
        self._before_frame: Waiting = OrderedDict()
        self._inside_frame: Waiting = OrderedDict()

    @property
    def exhausted(self) -> bool:
        return self.used_bytes >= self.max_bytes

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._before_frame) + len(self._inside_frame)

    def may_continue(self, account: Account, frame_bytes: int) -> bool:
        """Whether a connection that holds `frame_bytes` of a frame may take more for it."""
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
            self._inside_frame.popitem(last=False)[0]()
        while self._before_frame and not self.exhausted:
            self._before_frame.popitem(last=False)[0]()

    def wait(self, wake: Callable[[], None], *, inside_frame: bool) -> None:
        """Call `wake` once when there may be room again."""
        (self._inside_frame if inside_frame else self._before_frame)[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        """Who waited has gone."""
        self._inside_frame.pop(wake, None)
        self._before_frame.pop(wake, None)


class Account:
    """One connection's part of a budget: its arriving frames and unanswered requests."""

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
