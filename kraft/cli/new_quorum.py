"""Is a quorum as new as `kraft storage format --new-cluster` vouches? The other controllers are asked.

Of those that are down nobody can know. But whoever repeats the command of the first day for a disk that was
lost does so while the others run; a voter that has forgotten what it acknowledged would then elect a leader
that never had it.
"""

from __future__ import annotations

from typing import Any, Final

from kraft.config.node_config import Config
from kraft.net.client import Address
from kraft.node.listener_security import NodeSecurity
from kraft.peers.blocking_client import QUORUM_FIELDS, QUORUM_VERSIONS, SECURITY, Query, ask_each
from kraft.wire.api_keys import ApiKey
from kraft.wire.malformed import MalformedMessage, only
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import ErrorCode, ExitCode, FatalError
from metadata_quorum.raft.identity import is_formatted

TIMEOUT_S: Final = 2.0
_CLUSTER_VERSIONS: Final = (1, 2)
_OF_CONTROLLERS: Final = {"endpoint_type": 2}


def check_new(disk: Disk, config: Config, cluster_id: str) -> None:
    """Raises `FatalError` where a controller of this cluster has taken part in an election."""
    if not config.is_controller or is_formatted(disk, config.raft_dir):
        return
    others = [Address(each.host, each.port) for each in config.voters if each.node_id != config.node_id]
    for address, cluster, quorum in zip(others, *_answers(config, others), strict=True):
        if getattr(cluster, "cluster_id", None) == cluster_id and (epoch := _epoch(quorum)) > 0:
            raise FatalError(
                ExitCode.REFUSED,
                f"a controller of this cluster runs at {address}, in epoch {epoch}: the cluster is not new. "
                "Without --new-cluster this one has a vote as soon as all others have vouched for it",
            )


def _answers(config: Config, others: list[Address]) -> tuple[list[Any], list[Any]]:
    """Of each what it says of the cluster, and of the quorum."""
    queries = [Query(each, ApiKey.DESCRIBE_CLUSTER, _CLUSTER_VERSIONS, _OF_CONTROLLERS) for each in others]
    queries += [Query(each, ApiKey.DESCRIBE_QUORUM, QUORUM_VERSIONS, QUORUM_FIELDS) for each in others]
    try:
        token = SECURITY.set(NodeSecurity(config).to_controllers)
    except FatalError:  # its certificates are yet to come: nobody talks to us
        return [None] * len(others), [None] * len(others)
    try:
        answers = ask_each(queries, TIMEOUT_S)
    finally:
        SECURITY.reset(token)
    return answers[: len(others)], answers[len(others) :]


def _epoch(quorum: Any) -> int:
    if getattr(quorum, "error_code", None) != ErrorCode.NONE:
        return -1
    try:
        return int(only(only(quorum.topics).partitions).leader_epoch)
    except MalformedMessage:
        return -1
