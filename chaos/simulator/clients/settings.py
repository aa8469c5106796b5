"""What an administrator has set something to, and what it may be instead.

ask -> the request -> answered -> `may_be`, in the end

A request that was not answered may be carried out at any later time, after others that were.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


class Setting(Generic[Value]):
    """See the module."""

    def __init__(self, *initial: Value) -> None:
        """`initial`: what it is before anything is asked for, where that is known."""
        self._acknowledged: set[Value] = set(initial)
        """The last one that was; at most one."""
        self._maybe: dict[Value, int] = {}
        """How many requests for each may be carried out yet."""

    def ask(self, value: Value) -> None:
        """A request leaves."""
        self._maybe[value] = self._maybe.get(value, 0) + 1

    def answered(self, value: Value, *, is_done: bool) -> None:
        """Its answer proves that it was carried out, or that it never will be."""
        self._maybe[value] -= 1
        if is_done:
            self._acknowledged = {value}

    @property
    def acknowledged(self) -> Value | None:
        """The last one that was, where there is one."""
        return next(iter(self._acknowledged), None)

    @property
    def possible(self) -> set[Value]:
        """What it may be now; empty where nothing was acknowledged, and so anything may be."""
        if not self._acknowledged:
            return set()
        return self._acknowledged | {value for value, count in self._maybe.items() if count}
