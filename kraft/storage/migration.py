"""A whole quorum changes its software, on its own directories: `kraft storage export` and `import`.

    export   our controllers have been stopped       DIR/raft is set aside, Kafka's quorum-state written
    import   Kafka's controllers have been stopped   DIR/raft is made: a snapshot of the metadata

The metadata log is the same in both: cluster id, offsets and epochs go on, so brokers follow the new
controllers from where they were. All controllers are done together, because one of them is the newest: what
it has was acknowledged, and the others get its log. Ours writes its metadata log as it applies what the
quorum has committed; of Kafka's the newest log is the one that would win the next election, and all of it
would be committed.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from kraft.config.node_config import Config
from kraft.storage.formatter import lock_storage, read_storage
from kraft.storage.stopped_log import (
    StoppedLog,
    copy_log,
    read_stopped_log,
    remove_kafkas_own,
    sync_log,
)
from metadata_quorum.controller.state_machine import first_snapshot
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.features import SUPPORTED_FEATURES
from metadata_quorum.foundation.uuids import random_uuid
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.raft.identity import Identity, is_formatted, last_term, seed_voter

METADATA_DIR: Final = "__cluster_metadata-0"
_ASIDE: Final = "raft-exported"
"""Below the metadata log's directory, where Apache Kafka looks for no partitions."""
_UNFINISHED: Final = ".importing"
_DELEGATION_TOKEN: Final = 10
_REMOTE: Final = "remote.storage.enable"


class Migrated(NamedTuple):
    """What the new controllers begin with."""

    cluster_id: str
    end_offset: int
    epoch: int
    """The next leader's is greater."""


def export_quorum(disk: Disk, configs: Sequence[Config]) -> Migrated:
    """Leave the directories of all our controllers to Apache Kafka's. Raises `FatalError`; then nothing that
    ours need has changed."""
    with _stopped(disk, configs) as cluster_id:
        voting = [config for config in configs if is_formatted(disk, config.raft_dir)]
        if not voting:
            raise _refused("there is no quorum of ours in these directories: it has been exported before")
        logs = [read_stopped_log(disk, _metadata_dir(config)) for config in configs]
        newest = max(logs, key=lambda each: each.end)
        for each in logs:
            offset = newest.differs_at(each)
            if offset is not None:
                raise _refused(f"{newest.directory} and {each.directory} differ at offset {offset}")
        epoch = max(newest.end[0], *(last_term(disk, config.raft_dir) for config in voting))
        # Some are there already where an export broke off.
        epoch = max(epoch, *(_kafkas_epoch(disk, config) for config in configs))
        newest.image()
        with _telling_of_disks():
            _give_all(disk, newest, logs)
            for config in configs:
                _write_quorum_state(disk, config, epoch)
            for config in voting:
                _set_aside(disk, config)
        return Migrated(cluster_id, newest.end[1], epoch)


def import_quorum(disk: Disk, configs: Sequence[Config], rng: random.Random) -> Migrated:
    """Take the directories of all of Apache Kafka's controllers over. Raises `FatalError`; then nothing that
    Kafka's need has changed."""
    with _stopped(disk, configs) as cluster_id:
        for config in configs:
            # With Kafka's own files beside it, it is of an import that did not come to its end.
            if is_formatted(disk, config.raft_dir) and not disk.exists(_quorum_state(config)):
                raise _refused(f"{config.raft_dir} is there: this is a directory of ours already")
        logs = [read_stopped_log(disk, _metadata_dir(config)) for config in configs]
        newest = max(logs, key=lambda each: each.end)
        image = newest.image()
        _check_carried(newest, image)
        epoch = max(newest.end[0], *(_kafkas_epoch(disk, config) for config in configs))
        state = first_snapshot(image)
        with _telling_of_disks():
            for config in configs:
                identity = Identity(cluster_id, config.node_id, random_uuid(rng))
                unfinished = config.raft_dir + _UNFINISHED
                seed_voter(disk, unfinished, identity, state, epoch=newest.end[0], term=epoch)
            _give_all(disk, newest, logs)
            for config in configs:
                disk.remove_tree(config.raft_dir, NOT_SERVING)
                disk.rename(config.raft_dir + _UNFINISHED, config.raft_dir)
                disk.sync_dir(config.metadata_dir, NOT_SERVING)
            for config in configs:
                remove_kafkas_own(disk, _metadata_dir(config))
        return Migrated(cluster_id, newest.end[1], epoch)


# ---- both ways -----------------------------------------------------------------------------------------


@contextmanager
def _stopped(disk: Disk, configs: Sequence[Config]) -> Iterator[str]:
    """All controllers of one quorum, and none of them runs; the cluster's id."""
    named = sorted(config.node_id for config in configs)
    for config in configs:
        if [voter.node_id for voter in config.voters] != named:
            raise _refused(
                f"the properties of nodes {named} were given, and controller.quorum.voters of node "
                f"{config.node_id} is {config.controller_quorum_voters}: give those of every controller"
            )
    held: list[int] = []
    try:
        for config in configs:
            held += lock_storage(config)
        cluster_ids = {read_storage(disk, config).cluster_id for config in configs}
        if len(cluster_ids) > 1:
            raise _refused(f"the directories are of several clusters: {', '.join(sorted(cluster_ids))}")
        yield cluster_ids.pop()
    finally:
        for fd in held:
            os.close(fd)


@contextmanager
def _telling_of_disks() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FatalError(ExitCode.DISK_FAILED, f"{error.filename}: {error.strerror}; try again") from None


def _give_all(disk: Disk, newest: StoppedLog, logs: Sequence[StoppedLog]) -> None:
    sync_log(disk, newest)
    for each in logs:
        if each is not newest:
            copy_log(disk, newest, each.directory)


def _metadata_dir(config: Config) -> str:
    return f"{config.metadata_dir}/{METADATA_DIR}"


def _quorum_state(config: Config) -> str:
    return f"{_metadata_dir(config)}/quorum-state"


def _refused(why: str) -> FatalError:
    return FatalError(ExitCode.BAD_CONFIG, why)


# ---- export --------------------------------------------------------------------------------------------


def _write_quorum_state(disk: Disk, config: Config, epoch: int) -> None:
    """Kafka's QuorumStateData of a static quorum: an epoch that nobody leads. Brokers know it, and would not
    follow a leader of an older one."""
    state = {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter.node_id} for voter in config.voters],
        "data_version": 0,
    }
    disk.write_atomic(_quorum_state(config), json.dumps(state).encode(), NOT_SERVING)


def _set_aside(disk: Disk, config: Config) -> None:
    """Kafka takes every directory in a log dir for a partition's, and stops at one that cannot be."""
    aside = f"{_metadata_dir(config)}/{_ASIDE}"
    disk.remove_tree(aside, NOT_SERVING)
    disk.rename(config.raft_dir, aside)
    disk.sync_dir(config.metadata_dir, NOT_SERVING)


# ---- import --------------------------------------------------------------------------------------------


def _kafkas_epoch(disk: Disk, config: Config) -> int:
    """The newest that a controller of Apache Kafka's has voted in."""
    path = _quorum_state(config)
    if not disk.exists(path):
        return 0
    try:
        return int(json.loads(disk.read_bytes(path, NOT_SERVING))["leaderEpoch"])
    except (ValueError, KeyError, TypeError):
        raise FatalError(ExitCode.LOG_DIR_UNUSABLE, f"{path} is damaged: it names no epoch") from None


def _check_carried(log: StoppedLog, image: MetadataImage) -> None:
    """Refuse what we would lose."""
    if _DELEGATION_TOKEN in log.record_types():
        raise _refused("there are delegation tokens, and we have none: remove them, and wait for a snapshot")
    for name, level in image.features.items():
        low, high = SUPPORTED_FEATURES.get(name, (0, 0))
        if not low <= level <= high and level != 0:
            raise _refused(f"{name} is at level {level}, and we support {low} to {high}: downgrade it first")
    for (_, resource), values in sorted(image.configs.items()):
        if values.get(_REMOTE) == "true":
            raise _refused(f"topic {resource} has {_REMOTE}=true, and we read no remote storage")
