"""How our nodes, commands and connectors name themselves in ApiVersions (KIP-511)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME: Final = "kraft"
VERSION: Final = "1"
API_VERSIONS_FIELDS: Final[Mapping[str, str]] = {
    "client_software_name": NAME, "client_software_version": VERSION,
}  # fmt: skip
"""The fields of an ApiVersions request from version 3 on."""
