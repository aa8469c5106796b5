"""A whole quorum changes its software, on its own directories: `kraft storage export` and `import`.

    export   our controllers have been stopped       DIR/raft is set aside, Kafka's quorum-state written
    import   Kafka's controllers have been stopped   DIR/raft is made: a snapshot of the metadata

The metadata log is the same in both: cluster id, offsets and epochs go on, so brokers follow the new
controllers from where they were. All controllers are done together, because one of them is the newest: what
it has was acknowledged, and the others get its log. Of ours, the newest is told by Raft's journals, and its
metadata log is derived from them to the end; of Kafka's the newest log is the one that would win the next
election, and all of it would be committed.

A command that was killed is repeated: up to its last steps every directory has all of the log that it had.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from kraft.config.node_config import Config
from kraft.storage.formatter import lock_storage, read_storage
from kraft.storage.quorum_state import (
    has_quorum_state,
    mark_ours,
    metadata_log_dir,
    read_quorum_state,
    write_quorum_state,
)
from kraft.storage.stopped_log import (
    StoppedLog,
    copy_log,
    read_stopped_log,
    remove_kafkas_own,
    sync_log,
)
from metadata_quorum.controller.state_machine import MetadataStateMachine, first_snapshot
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.features import SUPPORTED_FEATURES
from metadata_quorum.foundation.uuids import random_uuid
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.metadata_log import MetadataLog
from metadata_quorum.raft.identity import Identity, is_formatted, read_identity, seed_voter
from metadata_quorum.raft.stopped import StoppedVoter, apply_all, read_stopped_voter

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
    with _telling_of_disks(), _stopped(disk, configs) as cluster_id:
        voting = [config for config in configs if is_formatted(disk, config.raft_dir)]
        if not voting:
            raise _refused("there is no quorum of ours in these directories: it has been exported before")
        for config in voting:
            read_identity(disk, config.raft_dir, cluster_id, config.node_id)
        voters = [(config, read_stopped_voter(disk, config.raft_dir)) for config in voting]
        _derive_log(disk, voters)
        newest, logs = _read_logs(disk, configs)
        for each in logs:
            offset = newest.differs_at(each)
            if offset is not None:
                raise _refused(f"{newest.directory} and {each.directory} differ at offset {offset}")
        epoch = max(newest.end[0], *(voter.term for _, voter in voters), _kafkas_epoch(disk, configs))
        newest.image()
        _give_all(disk, newest, logs)
        for config in configs:
            write_quorum_state(disk, config, epoch)
        for config in voting:
            _set_aside(disk, config)
        return Migrated(cluster_id, newest.end[1], epoch)


def import_quorum(disk: Disk, configs: Sequence[Config], rng: random.Random) -> Migrated:
    """Take the directories of all of Apache Kafka's controllers over. Raises `FatalError`; then nothing that
    Kafka's need has changed."""
    with _telling_of_disks(), _stopped(disk, configs) as cluster_id:
        if _is_nearly_done(disk, configs):
            return _finish_import(disk, configs, cluster_id)
        newest, logs = _read_logs(disk, configs)
        for each in logs:
            if each.empty:
                raise FatalError(
                    ExitCode.LOG_DIR_UNUSABLE,
                    f"{each.directory} is not there or empty: no controller has run here",
                )
        image = newest.image()
        _check_voters(disk, newest, configs)
        _check_carried(newest, image)
        epoch = max(newest.end[0], _kafkas_epoch(disk, configs))
        # Whoever has registered is Apache Kafka's: ours can run other levels, and its observers never come.
        state = first_snapshot(replace(image, controllers={}))
        for config in configs:
            identity = Identity(cluster_id, config.node_id, random_uuid(rng))
            unfinished = config.raft_dir + _UNFINISHED
            seed_voter(disk, unfinished, identity, state, epoch=newest.end[0], term=epoch)
        _give_all(disk, newest, logs)
        for config in configs:
            disk.remove_tree(config.raft_dir, NOT_SERVING)
            disk.rename(config.raft_dir + _UNFINISHED, config.raft_dir)
            disk.sync_dir(config.metadata_dir, NOT_SERVING)
        return _finish_import(disk, configs, cluster_id)


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
        where = f"{error.filename}: " if error.filename else ""
        raise FatalError(ExitCode.DISK_FAILED, f"{where}{error.strerror}; try again") from None


def _read_logs(disk: Disk, configs: Sequence[Config]) -> tuple[StoppedLog, list[StoppedLog]]:
    """The newest, and all of them."""
    logs = [read_stopped_log(disk, metadata_log_dir(config)) for config in configs]
    newest = max(logs, key=lambda each: each.end)
    for each in logs:
        if each.read_to is not None and each.read_to > newest.end[1]:
            raise FatalError(
                ExitCode.LOG_DIR_UNUSABLE,
                f"{each.directory} is damaged at offset {each.end[1]}, and no other has what follows there: "
                "start the controllers that it is of once more, and stop them",
            )
    return newest, logs


def _give_all(disk: Disk, newest: StoppedLog, logs: Sequence[StoppedLog]) -> None:
    sync_log(disk, newest)
    for each in logs:
        if each is not newest:
            copy_log(disk, newest, each.directory)


def _kafkas_epoch(disk: Disk, configs: Sequence[Config]) -> int:
    """The newest that a controller of Apache Kafka's has voted in. Some have none while a command is repeated
    that broke off."""
    states = [read_quorum_state(disk, config) for config in configs]
    return max((state.epoch for state in states if state is not None), default=0)


def _refused(why: str) -> FatalError:
    return FatalError(ExitCode.BAD_CONFIG, why)


# ---- export --------------------------------------------------------------------------------------------


def _derive_log(disk: Disk, voters: Sequence[tuple[Config, StoppedVoter]]) -> None:
    """All that the quorum may have acknowledged is in one metadata log, as if it had been elected."""
    config, newest = max(voters, key=lambda each: each[1].last_entry)
    log = MetadataLog(disk, metadata_log_dir(config), segment_bytes=config.metadata_log_segment_bytes)
    try:
        apply_all(disk, newest, MetadataStateMachine(log))
    finally:
        log.close()


def _set_aside(disk: Disk, config: Config) -> None:
    """Kafka takes every directory in a log dir for a partition's, and stops at one that cannot be."""
    aside = f"{metadata_log_dir(config)}/{_ASIDE}"
    disk.remove_tree(aside, NOT_SERVING)
    disk.rename(config.raft_dir, aside)
    disk.sync_dir(metadata_log_dir(config), NOT_SERVING)
    disk.sync_dir(config.metadata_dir, NOT_SERVING)


# ---- import --------------------------------------------------------------------------------------------


def _is_nearly_done(disk: Disk, configs: Sequence[Config]) -> bool:
    """Whether an import broke off when nothing was left but to remove Kafka's files. Any other that broke off
    begins again: a `raft` beside Kafka's `quorum-state` does not count."""
    ours = [config for config in configs if is_formatted(disk, config.raft_dir)]
    done = [config for config in ours if not has_quorum_state(disk, config)]
    if len(done) == len(configs):
        raise _refused(f"{done[0].raft_dir} is there: this is a directory of ours already")
    return bool(done) and len(ours) == len(configs)


def _finish_import(disk: Disk, configs: Sequence[Config], cluster_id: str) -> Migrated:
    """A controller of ours starts where Kafka's `quorum-state` is replaced: that comes last."""
    for config in configs:
        remove_kafkas_own(disk, metadata_log_dir(config))
    newest, _ = _read_logs(disk, configs)
    epoch = max(read_stopped_voter(disk, config.raft_dir).term for config in configs)
    for config in configs:
        mark_ours(disk, config)
    return Migrated(cluster_id, newest.end[1], epoch)


def _check_voters(disk: Disk, log: StoppedLog, configs: Sequence[Config]) -> None:
    """The newest log of some of the controllers need not be the quorum's."""
    given = {config.node_id for config in configs}
    states = [read_quorum_state(disk, config) for config in configs]
    known = [state.voters for state in states if state is not None]
    for voters in (*known, log.voters()):
        if not voters <= given:
            raise _refused(
                f"the voters of this quorum are {sorted(voters)}, and {sorted(given)} were given: give the "
                "properties of every controller, or take the others out of the quorum"
            )


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
