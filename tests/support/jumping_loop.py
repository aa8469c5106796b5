"""A loop for what needs its clock and its timers alone, such as the timing wheel: no time passes."""

from __future__ import annotations

from collections.abc import Callable


class JumpingLoop:
    """Its clock jumps to the timer that is armed."""

    def __init__(self) -> None:
        self.now = 50.0
        self.armed: list[ArmedTimer] = []
        self.most_armed = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> ArmedTimer:
        timer = ArmedTimer(self, when, callback)
        self.armed.append(timer)
        self.most_armed = max(self.most_armed, len(self.armed))
        return timer

    def run(self) -> None:
        while self.armed:
            timer = self.armed.pop()
            self.now = max(self.now, timer.when)
            timer.callback()


class ArmedTimer:
    def __init__(self, loop: JumpingLoop, when: float, callback: Callable[[], object]) -> None:
        self.loop, self.when, self.callback = loop, when, callback

    def cancel(self) -> None:
        if self in self.loop.armed:
            self.loop.armed.remove(self)
