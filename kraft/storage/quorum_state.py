"""`quorum-state`, in which Apache Kafka's Raft keeps its epoch and vote beside the metadata log.

    {"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,
     "currentVoters":[{"voterId":1}],"data_version":0}

Ours keeps both in DIR/raft, and has a file of this name that Apache Kafka cannot read: it stops there, and
says what the file says. So a controller's directory is Apache Kafka's where it has its file and no `raft`; it
is ours where it has a `raft` and not Kafka's file; with both, an export or an import is not finished.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from kraft.config.node_config import Config
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import Disk, make_dirs_durably
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import METADATA_TOPIC

FILE_NAME: Final = "quorum-state"
_OURS: Final = b'{"kraft":"this controller is kraft\'s: kraft storage export leaves it to Apache Kafka"}'


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a controller of Apache Kafka's knows of its quorum."""

    epoch: int
    """The newest that it has voted in."""
    voters: frozenset[int]
    """Empty where the quorum is dynamic: the voters are in the log then."""


def metadata_log_dir(config: Config) -> str:
    return f"{config.metadata_dir}/{METADATA_TOPIC}-0"


def has_quorum_state(disk: Disk, config: Config) -> bool:
    """Whether there is one of Apache Kafka's. Raises `OSError`."""
    return disk.exists(_path(config)) and disk.read_bytes(_path(config), NOT_SERVING) != _OURS


def read_quorum_state(disk: Disk, config: Config) -> QuorumState | None:
    """None where there is none. Raises `FatalError` where it is damaged, `OSError`."""
    if not has_quorum_state(disk, config):
        return None
    try:
        state = json.loads(disk.read_bytes(_path(config), NOT_SERVING))
        voters = frozenset(int(each["voterId"]) for each in state.get("currentVoters") or ())
        return QuorumState(int(state["leaderEpoch"]), voters)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FatalError(
            ExitCode.LOG_DIR_UNUSABLE, f"{_path(config)} is damaged: it names no epoch"
        ) from None


def write_quorum_state(disk: Disk, config: Config, epoch: int) -> None:
    """Of a static quorum, in an epoch that nobody leads: brokers know it, and would not follow a leader of an
    older one. Raises `OSError`."""
    state = {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter.node_id} for voter in config.voters],
        "data_version": 0,
    }
    disk.write_atomic(_path(config), json.dumps(state).encode(), NOT_SERVING)


def mark_ours(disk: Disk, config: Config) -> None:
    """Keep controllers of Apache Kafka from starting here, and remove what one left. Raises `OSError`."""
    if has_quorum_state(disk, config) or not disk.exists(_path(config)):
        make_dirs_durably(disk, metadata_log_dir(config), NOT_SERVING)
        disk.write_atomic(_path(config), _OURS, NOT_SERVING)


def _path(config: Config) -> str:
    return f"{metadata_log_dir(config)}/{FILE_NAME}"
