"""The APIs that a node answers, one row each. ApiVersions, dispatch and docs/APIS.md derive from it.

Ranges of versions and listeners are those of Apache Kafka 4.1 (without its unstable versions).
"""

from __future__ import annotations

from typing import Final

from kraft.api import metadata, raft, versions
from kraft.api.row import BROKER, CONTROLLER, EVERYWHERE, ApiRow
from kraft.wire.raft_frame import RAFT_API_KEY, RAFT_API_VERSION

_ROWS: Final = (
    ApiRow(3, "Metadata", 0, 13, BROKER, metadata.handle_metadata, on_error=metadata.metadata_error),
    ApiRow(18, "ApiVersions", 0, 4, EVERYWHERE, versions.handle),
    ApiRow(
        RAFT_API_KEY, "Raft", RAFT_API_VERSION, RAFT_API_VERSION, CONTROLLER, raw=raft.handle, internal=True
    ),
)

ROWS: Final[dict[int, ApiRow]] = {row.key: row for row in _ROWS}
