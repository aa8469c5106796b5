"""Warnings about keys that nothing reads: misspelled, or of a listener that there is not."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterable
from typing import Final

from kraft.config.keys import CLASSES, CLUSTER_WIDE_OF_LISTENERS, FIXED_IN_KAFKA, LISTENER_PREFIX
from kraft.config.security_keys import SASL_MECHANISMS

logger = logging.getLogger(__name__)

_KAFKAS: Final = FIXED_IN_KAFKA.union(CLASSES, CLUSTER_WIDE_OF_LISTENERS)


def warn_unknown(key: str, known: Collection[str], prefix: str = "") -> None:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    logger.warning("unknown key %s is ignored%s", prefix + key, hint)


def warn_of_listeners(keys: Iterable[str], listeners: Iterable[str], known: Collection[str]) -> None:
    """Of listener.name.NAME.KEY, with NAME in lower case as in Kafka. Where nothing reads one, its listener
    is secured as the node's own keys say, which may be not at all."""
    names = dict.fromkeys(each.lower() for each in listeners)
    for key in keys:
        if not key.startswith(LISTENER_PREFIX):
            continue
        name, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
        if name not in names:
            meant = name.lower() if name.lower() in names else None
            hint = f"; did you mean {LISTENER_PREFIX}{meant}.{rest}?" if meant else ""
            logger.warning("%s is ignored: no listener is called %s%s", key, name, hint)
            continue
        mechanism, _, of_mechanism = rest.partition(".")
        is_of_mechanism = mechanism.upper() in SASL_MECHANISMS
        base = of_mechanism if is_of_mechanism else rest
        if base not in known and base not in _KAFKAS:
            given = f"{name}.{mechanism}." if is_of_mechanism else f"{name}."
            warn_unknown(base, known, LISTENER_PREFIX + given)
