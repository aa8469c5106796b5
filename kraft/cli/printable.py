"""Names and sentences of others, for a terminal: those of groups, members and transactions may hold any
characters, and so commands to the terminal, or lines of a table that is none."""

from __future__ import annotations

from typing import Final

_INSTEAD: Final = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """The text without control characters."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _INSTEAD for each in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))
