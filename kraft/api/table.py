"""The API table: one row for each API that a node answers.

Each family of APIs states its rows, with the versions (but the unstable ones), listeners and authorization
of Apache Kafka 4.1. ApiVersions, dispatch, authorization and docs/APIS.md derive from them.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from kraft.api import (
    acls,
    add_partitions,
    brokers,
    client_envelope,
    config_resources,
    configs,
    consumer_groups,
    envelope,
    features,
    fetch,
    group_admin,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    metadata_fetch,
    node_view,
    offsets,
    produce,
    producer_ids,
    quorum,
    quotas,
    raft,
    reassignments,
    record_counts,
    sasl,
    scram_credentials,
    telemetry,
    topics,
    transactions,
    versions,
)
from kraft.api.row import ApiRow

FAMILIES: Final[tuple[tuple[ApiRow, ...], ...]] = (
    produce.ROWS,
    fetch.ROWS,
    offsets.ROWS,
    metadata.ROWS,
    groups.ROWS,
    group_offsets.ROWS,
    group_admin.ROWS,
    consumer_groups.ROWS,
    topics.ROWS,
    configs.ROWS,
    config_resources.ROWS,
    features.ROWS,
    quotas.ROWS,
    reassignments.ROWS,
    log_dirs.ROWS,
    brokers.ROWS,
    producer_ids.ROWS,
    transactions.ROWS,
    add_partitions.ROWS,
    quorum.ROWS,
    metadata_fetch.ROWS,
    envelope.ROWS,
    sasl.ROWS,
    telemetry.ROWS,
    scram_credentials.ROWS,
    acls.ROWS,
    versions.ROWS,
    raft.ROWS,
    node_view.ROWS,
    record_counts.ROWS,
    client_envelope.ROWS,
)

ROWS: Final[dict[int, ApiRow]] = {
    row.key: row for row in sorted(chain.from_iterable(FAMILIES), key=lambda row: row.key)
}
