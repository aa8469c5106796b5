"""Whose connection it is by its certificate: ssl.principal.mapping.rules. Kafka: SslPrincipalMapper.

    RULE:^CN=(.*?),OU=Maps.*$/$1/L, DEFAULT        the first pattern that is the whole name decides

listener_keys.py -> parse_rules -> `principal_of`, for each connection whose client shows a certificate
"""

from __future__ import annotations

import re
from typing import Final

from kraft.config.node_config import reject
from kraft.net.listener import Certificate
from kraft.node.certificate_fields import distinguished_name

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])+)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")

Rules = tuple[tuple[re.Pattern[str], str, str] | None, ...]
"""Pattern, replacement, L or U or nothing; None is DEFAULT."""


def parse_rules(text: str) -> Rules:
    """ssl.principal.mapping.rules."""
    rules: list[tuple[re.Pattern[str], str, str] | None] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            reject(
                "ssl.principal.mapping.rules",
                text[position:],
                "each is DEFAULT or RULE:PATTERN/REPLACEMENT/[LU]",
            )
        default, pattern, replacement, case = found.groups()
        try:
            rules.append(None if default else (re.compile(pattern), replacement, case))
        except re.error as error:
            reject("ssl.principal.mapping.rules", pattern, str(error))
        position = found.end()
    return tuple(rules)


def principal_of(certificate: Certificate, rules: Rules) -> str:
    """The principal by the first rule that matches. Raises `ValueError` if none does."""
    name = distinguished_name(certificate)
    for rule in rules:
        if rule is None:
            return f"User:{name}"
        pattern, replacement, case = rule
        if (found := pattern.fullmatch(name)) is None:
            continue
        user = re.sub(r"\$(\d)", lambda group, found=found: found[int(group[1])] or "", replacement)  # type: ignore[misc]
        return f"User:{user.lower() if case == 'L' else user.upper() if case == 'U' else user}"
    raise ValueError(f"no rule of ssl.principal.mapping.rules fits {name}")
