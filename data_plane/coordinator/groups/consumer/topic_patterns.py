"""Regular expressions by which members subscribe to topics (SubscribedTopicRegex).

Kafka's coordinator takes RE2/J's syntax and matches whole names. Here Python's `re` reads them, with
what RE2/J does not have (looking around, references back, possessive repeats, conditions) refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from metadata_quorum.errors import BrokerError, ErrorCode

_NOT_IN_RE2: Final = re.compile(
    r"(?<!\\)(?:\\\\)*"  # not escaped
    r"(?:\(\?(?:[=!>(#]|<[=!]|P=)"  # (?=  (?!  (?>  (?(  (?#  (?<=  (?<!  (?P=
    r"|\\[1-9]"
    r"|[*+?}]\+)"  # possessive
)
_PATTERNS_KEPT: Final = 1024


@lru_cache(_PATTERNS_KEPT)
def compiled(regex: str) -> re.Pattern[str]:
    """Raises BrokerError INVALID_REGULAR_EXPRESSION."""
    try:
        if _NOT_IN_RE2.search(regex):
            raise re.error("not part of RE2's syntax")
        return re.compile(regex)
    except (re.error, RecursionError, OverflowError) as e:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {e}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from e


def matching(regex: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that the whole expression matches, sorted."""
    matches = compiled(regex).fullmatch
    return tuple(sorted(name for name in names if matches(name)))
