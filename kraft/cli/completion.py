"""Names for the shell's completion (`kraft --install-completion`): topics, groups, transactional ids.

They come from the broker of the line's --bootstrap-server, else of the environment's, else from the default
one, if it answers at once. A shell that waits for a name is worse than one without names, so after any error
there are none.

A name is offered only if it is a word to every shell: anybody may call a group `$(reboot)`, and what is
completed is not quoted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Final

from kraft.cli.errors import CliError
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError

PATIENCE_S: Final = 1.0

_BOOTSTRAP: Final = re.compile(r"(?:--bootstrap-server|-b)[\s=]+(?P<host>[^\s:,]+)\s*:\s*(?P<port>\d+)")
"""bash takes a colon for the end of a word, and hands the address over in three."""
_WORD: Final = re.compile(r"[\w.][\w.:/@+,%-]*")
"""No option, and nothing that a shell acts on."""


def topics(incomplete: str) -> list[str]:
    answer = _ask(ApiKey.METADATA, (9, 12), {"topics": None, "allow_auto_topic_creation": False})
    return [] if answer is None else _beginning(incomplete, (topic.name for topic in answer.topics))


def groups(incomplete: str) -> list[str]:
    answers = _ask_all(ApiKey.LIST_GROUPS, (4, 5), {"states_filter": []})
    return _beginning(incomplete, (group.group_id for answer in answers for group in answer.groups))


def transactional_ids(incomplete: str) -> list[str]:
    answers = _ask_all(ApiKey.LIST_TRANSACTIONS, (0, 2), {"state_filters": [], "producer_id_filters": []})
    return _beginning(
        incomplete, (each.transactional_id for answer in answers for each in answer.transaction_states)
    )


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete) and _WORD.fullmatch(name)})


def _address() -> tuple[str, int]:
    from kraft.cli.bootstrap import addresses
    from kraft.cli.confluent_client import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP

    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    match = _BOOTSTRAP.search(line)
    if match:
        return match["host"], int(match["port"])
    return addresses(os.environ.get(BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP))[0]


def _ask_all(api_key: ApiKey, versions: tuple[int, int], fields: dict[str, Any]) -> list[Any]:
    """The responses of all brokers: each has only a part."""
    known = _ask(ApiKey.METADATA, (9, 12), {"topics": [], "allow_auto_topic_creation": False})
    brokers = () if known is None else known.brokers
    answers = [_ask(api_key, versions, fields, (broker.host, broker.port)) for broker in brokers]
    return [answer for answer in answers if answer is not None]


def _ask(
    api_key: ApiKey, versions: tuple[int, int], fields: dict[str, Any], address: tuple[str, int] | None = None
) -> Any | None:
    from kraft.net.client import UnsupportedVersion
    from kraft.peers.blocking_client import ask  # the codec takes a while to import

    try:
        return ask(*(address or _address()), api_key, versions, fields, timeout_s=PATIENCE_S)
    except (OSError, BrokerError, CliError, UnsupportedVersion, ValueError):
        return None
