"""The text of keys like sasl.jaas.config: as whom one logs in, or who may.

    PlainLoginModule required username="anna" password="…" user_bert="…";   -> {"username": "anna", …}

Of the listeners' keys, and of a client's (cli/command_config.py).
"""

from __future__ import annotations

import re
from typing import Final

_OPTION: Final = re.compile(r'(\S+?)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


def parse_jaas(text: str) -> dict[str, str]:
    """The options of a JAAS login module."""
    return {
        name: bare if bare else re.sub(r"\\(.)", r"\1", quoted)
        for name, quoted, bare in _OPTION.findall(text)
    }
