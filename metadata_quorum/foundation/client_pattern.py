"""Regular expressions that clients send, matched in time that grows with the text and no faster.

Kafka uses RE2/J, because an expression comes from a client and must not be able to keep a broker busy;
Python's `re` tries one way after the other, which some expressions make endless. This is RE2 itself, with
bounds: on what an expression may take in memory (and with that, in time per character), on what makes it
slow to compile, and on the length of a text.

    SubscribedTopicRegex of ConsumerGroupHeartbeat -> groups/consumer/topic_patterns.py -> here
    the pattern of ListTransactions                -> kraft/api/transactions.py         -> here
    `match` of a client metrics subscription       -> decisions/client_metrics.py (checked),
                                                      kraft/api/telemetry.py (matched)  -> here
"""

from __future__ import annotations

import re
from typing import Final

import re2

MOST_BYTES: Final = 128 * 1024
"""Memory of one compiled expression: some five thousand states, which is milliseconds for 249 characters."""
MOST_COSTLY_PARTS: Final = 50
"""Counted repetitions and Unicode classes, each of which may take half a millisecond to compile."""
LONGEST_TEXT: Final = 4_096
"""Characters. Nothing longer matches: only an attacker uses such a name."""

_COSTLY: Final = re.compile(r"\{|\\[pP]")
_ESCAPE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)


def _as_in_java(escape: re.Match[str]) -> str:
    """RE2/J knows no single bytes, and takes a letter beyond ASCII behind a backslash for itself."""
    character = escape[1] or ""
    if character == "C":
        raise ValueError(r"invalid escape sequence: `\C`")
    return escape[0] if character.isascii() else character


class ClientPattern:
    """One expression. Raises ValueError where it is none, or too large."""

    __slots__ = ("_compiled",)

    def __init__(self, regex: str) -> None:
        if len(_COSTLY.findall(regex)) > MOST_COSTLY_PARTS:
            raise ValueError("expression is too large")
        options = re2.Options()
        options.max_mem = MOST_BYTES
        options.log_errors = False
        options.never_capture = True
        try:
            self._compiled = re2.compile(_ESCAPE.sub(_as_in_java, regex), options)
        except re2.error as error:
            message = error.args[0]
            raise ValueError(
                message.decode(errors="replace") if isinstance(message, bytes) else message
            ) from None

    def matches(self, text: str) -> bool:
        """The whole of it."""
        return len(text) <= LONGEST_TEXT and self._compiled.fullmatch(text) is not None
