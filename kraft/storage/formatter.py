"""What `kraft storage format` writes into a node's directories, and what a starting node checks there.

Every log dir carries Kafka's `meta.properties` (cluster id, node id, directory id); a controller's
metadata dir also carries the marker of its voter (metadata_quorum/raft/identity.py). A node refuses
to start on directories of another cluster or node, or on ones that another process has in use. A broker
starts without a log dir whose disk does not answer, or takes nothing any more (Linux remounts it read-only).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from kraft.config.node_config import RAFT_DIR, Config
from kraft.storage.bootstrap import write_users
from kraft.storage.meta_properties import META_PROPERTIES, read_meta_properties, write_meta_properties
from kraft.storage.quorum_state import has_quorum_state, mark_ours
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import PRIVATE_FILE, Disk, is_of_disk, make_dirs_durably, sync_way_to
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import TOPIC_NAME
from metadata_quorum.foundation.uuids import parse_uuid, random_uuid
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.raft.identity import (
    Identity,
    format_voter,
    is_formatted,
    other_voters,
    read_identity,
)
from metadata_quorum.raft.journal import has_taken_part

logger = logging.getLogger(__name__)

_LIKE_A_PARTITION: Final = re.compile(f"{TOPIC_NAME}-[0-9]+")
LOCK_FILE: Final = ".lock"
"""Kafka's name: both brokers respect each other's."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A node's identity, as its directories have it."""

    cluster_id: str
    directories: dict[str, UUID]
    """Log dir -> its directory id."""
    unusable: tuple[str, ...] = ()
    """Log dirs whose disk has failed: they are offline until the next start."""

    def without(self, directory: str, error: OSError) -> Storage:
        """Where that log dir is unusable, too. Raises FatalError where none is left."""
        logger.error("log directory %s is offline: it cannot be used: %s", directory, error.strerror)
        usable = {each: its_id for each, its_id in self.directories.items() if each != directory}
        unusable = (*self.unusable, directory)
        if not usable:
            raise FatalError(ExitCode.DISK_FAILED, f"no log directory can be used: {', '.join(unusable)}")
        return Storage(self.cluster_id, usable, unusable)


@dataclass(frozen=True, slots=True)
class Inspected:
    """A directory as it lies there, and what keeps a node from starting on it."""

    directory: str
    cluster_id: str | None = None
    node_id: str | None = None
    directory_id: str | None = None
    problem: str | None = None


def inspect_storage(disk: Disk, config: Config) -> list[Inspected]:
    """Every directory of the node, metadata's included. Changes nothing; the node may be running."""
    check_apart(config)
    found, cluster_id = [], ""
    for directory in _all_dirs(config):
        try:
            meta = _read_meta(disk, directory)
            cluster_id = cluster_id or meta.get("cluster.id", "")
            if meta:
                _check_meta(directory, meta, cluster_id, config.node_id)
        except FatalError as error:
            found.append(Inspected(directory, problem=error.reason))
            continue
        problem = None
        if not meta:
            problem = "not formatted: `kraft storage format` does that"
        elif directory == config.metadata_dir and config.is_controller:
            problem = _problem_of_voter(disk, config, meta["cluster.id"])
        found.append(
            Inspected(
                directory, meta.get("cluster.id"), meta.get("node.id"), meta.get("directory.id"), problem
            )
        )
    return found


def _problem_of_voter(disk: Disk, config: Config, cluster_id: str) -> str | None:
    try:
        if not is_formatted(disk, config.raft_dir):
            gone = "the voter's marker is gone: this controller has lost its disk, and is to be formatted"
            return _voter_elsewhere(disk, config) or gone
        identity = read_identity(disk, config.raft_dir, cluster_id, config.node_id)
        if not has_taken_part(disk, config.raft_dir):
            return None
    except FatalError as error:
        return error.reason
    except OSError as error:
        return _cannot_read(config.raft_dir, error).reason
    return other_voters(config.raft_dir, identity, [voter.node_id for voter in config.voters])


def format_storage(
    disk: Disk,
    config: Config,
    cluster_id: str,
    rng: random.Random,
    *,
    users: Sequence[UserScramCredentialRecord] = (),
    new_cluster: bool = False,
    ignore_formatted: bool = False,
) -> list[str]:
    """Prepare every directory of the node; returns those that were not formatted before.

    `users`: the SCRAM users of a new cluster. `new_cluster`: see `identity.format_voter`. Raises FatalError
    where a directory is formatted already (unless `ignore_formatted`), or for another cluster or node, or
    cannot be written. A controller that lost the quorum's directory gets a new one, and keeps its partitions.
    One without a directory.id (Apache Kafka's before 3.7 had none) gets one, and keeps everything.
    """
    if not cluster_id or any(c.isspace() for c in cluster_id):
        raise FatalError(
            ExitCode.BAD_CONFIG, f"{cluster_id!r} is no cluster id: `kraft storage random-uuid` makes one"
        )
    check_apart(config)
    if config.is_controller:
        _check_voter(disk, config)
    fresh: list[str] = []
    nameless: list[str] = []
    for directory in _all_dirs(config):
        meta = _read_meta(disk, directory)
        if _id_in(meta) is None:
            nameless.append(directory)
        if not meta:
            fresh.append(directory)
        else:
            _check_meta(directory, meta, cluster_id, config.node_id)
            if (
                config.is_controller
                and directory == config.metadata_dir
                and not is_formatted(disk, config.raft_dir)
            ):
                check_ours(disk, config)
                fresh.append(directory)
            elif not ignore_formatted:
                raise FatalError(
                    ExitCode.LOG_DIR_UNUSABLE,
                    f"{directory} is formatted already; --ignore-formatted leaves it as it is",
                )
    try:
        for directory in fresh:
            make_dirs_durably(disk, directory, NOT_SERVING)
            if config.is_controller and directory == config.metadata_dir:
                identity = Identity(cluster_id, config.node_id, random_uuid(rng))
                if users:
                    write_users(disk, config, users)
                format_voter(disk, config.raft_dir, identity, new_cluster=new_cluster)
        # Last: a directory with meta.properties is formatted completely. One that has an id keeps it.
        for directory in nameless:
            _mark(disk, directory, cluster_id, config.node_id, random_uuid(rng))
        for directory in _all_dirs(config):  # one that was killed before may have made some of it
            sync_way_to(disk, directory, NOT_SERVING)
    except OSError as error:
        raise FatalError(
            ExitCode.LOG_DIR_UNUSABLE,
            f"cannot format {error.filename or directory}: {error.strerror}",  # that of a write names no file
        ) from None
    return [directory for directory in _all_dirs(config) if directory in {*fresh, *nameless}]


def _mark(disk: Disk, directory: str, cluster_id: str, node_id: int, directory_id: UUID) -> None:
    """As formatted. Raises OSError; then no new mark is left: no later sync would write its name."""
    path = f"{directory}/{META_PROPERTIES}"
    is_new = not disk.exists(path)
    try:
        write_meta_properties(
            disk, path, cluster_id=cluster_id, node_id=node_id, directory_id=directory_id,
            may_block=NOT_SERVING,
        )  # fmt: skip
    except OSError:
        if is_new:
            with contextlib.suppress(OSError):
                disk.remove(path)
        raise


def read_storage(disk: Disk, config: Config) -> Storage:
    """The identity of a node that starts. Raises FatalError unless every directory is formatted, all for one
    cluster and for this node, but for log dirs that cannot be read, where others and the metadata can."""
    cluster_id = ""
    directories: dict[str, UUID] = {}
    failed: dict[str, OSError] = {}
    for directory in _all_dirs(config):
        try:
            meta = _read_fields(disk, directory)
        except OSError as error:
            if not _can_do_without(config, directory, error):
                raise _cannot_read(directory, error) from None
            failed[directory] = error
            continue
        if not meta:
            raise FatalError(
                ExitCode.LOG_DIR_UNUSABLE,
                f"{directory} is not formatted: `kraft storage format` does that",
            )
        cluster_id = cluster_id or meta.get("cluster.id", "")
        _check_meta(directory, meta, cluster_id, config.node_id)
        directory_id = _directory_id(directory, meta)
        for other, its_id in directories.items():
            if its_id == directory_id:
                raise FatalError(
                    ExitCode.LOG_DIR_UNUSABLE,
                    f"{directory} has the directory.id of {other}: its {META_PROPERTIES} is a copy. Remove "
                    "it from the new one of the two, and format that",
                )
        directories[directory] = directory_id
    storage = Storage(
        cluster_id, {each: directories[each] for each in config.data_dirs if each in directories}
    )
    for directory, why in failed.items():
        storage = storage.without(directory, why)
    return storage


def without_read_only(config: Config, storage: Storage) -> Storage:
    """But for log dirs whose disk takes nothing any more; the metadata's is left to `lock_storage`."""
    for directory in tuple(storage.directories):
        try:
            os.close(_open_lock_file(directory))
        except OSError as error:
            if _can_do_without(config, directory, error):
                storage = storage.without(directory, error)
    return storage


def _can_do_without(config: Config, directory: str, error: OSError) -> bool:
    return is_of_disk(error) and directory != config.metadata_dir and config.is_broker


def _voter_elsewhere(disk: Disk, config: Config) -> str | None:
    """The order of log.dirs, or metadata.log.dir, has changed under a controller: a new voter in its place
    would know nothing of what it has voted and acknowledged. What is wrong then. Raises OSError."""
    if is_formatted(disk, config.raft_dir):
        return None
    for directory in config.data_dirs:
        if is_formatted(disk, f"{directory}/{RAFT_DIR}"):
            return (
                f"the metadata of this controller is in {directory}, not in {config.metadata_dir}: "
                f"set metadata.log.dir={directory}"
            )
    return None


def _check_voter(disk: Disk, config: Config) -> None:
    """Raises `FatalError`."""
    try:
        problem = _voter_elsewhere(disk, config)
    except OSError as error:
        raise _cannot_read(config.raft_dir, error) from None
    if problem is not None:
        raise FatalError(ExitCode.LOG_DIR_UNUSABLE, problem)


def check_ours(disk: Disk, config: Config) -> None:
    """A controller neither starts nor is formatted beside what Apache Kafka's has left: of the metadata
    that is there, a quorum of ours would keep nothing that it did not write. Raises `FatalError`."""
    if has_quorum_state(disk, config):
        unfinished = is_formatted(disk, config.raft_dir)
        raise FatalError(
            ExitCode.LOG_DIR_UNUSABLE,
            f"{config.metadata_dir} is left half way between Apache Kafka and kraft: repeat `kraft storage "
            "import` or `kraft storage export`, whichever it was"
            if unfinished
            else f"{config.metadata_dir} is Apache Kafka's: `kraft storage import` takes it over",
        )


def hold_against_kafka(disk: Disk, config: Config) -> None:
    """A controller starts: Apache Kafka's, started here by mistake, would take its metadata log for all of
    it. Raises `FatalError`, `OSError`."""
    check_ours(disk, config)
    _check_voter(disk, config)
    if is_formatted(disk, config.raft_dir):
        mark_ours(disk, config)


def lock_storage(config: Config, unusable: Collection[str] = ()) -> list[int]:
    """Lock the directories for this process, but for those; returns descriptors, which hold the locks until
    they are closed. Raises FatalError where another process has one in use."""
    held: list[int] = []
    for directory in _all_dirs(config):
        if directory in unusable:
            continue
        try:
            fd = _open_lock_file(directory)
            held.append(fd)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            for fd in held:
                os.close(fd)
            in_use = error.errno in (errno.EAGAIN, errno.EACCES) and error.filename is None
            why = "another node is running on it" if in_use else error.strerror
            raise FatalError(ExitCode.LOG_DIR_UNUSABLE, f"cannot use {directory}: {why}") from None
    return held


def _open_lock_file(directory: str) -> int:
    return os.open(f"{directory}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)


def boot_id() -> str:
    """The id that Linux gives every boot of the machine; empty elsewhere, where a killed node counts as one
    that has lost the page cache."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def which_copy(directory: str) -> str:
    """`meta.properties` is written once: whoever copies or restores the directory makes another one, whatever
    times that is given."""
    try:
        return f"/{os.stat(f'{directory}/{META_PROPERTIES}').st_ctime_ns}"
    except OSError:
        return ""


def check_apart(config: Config) -> None:
    """A directory that has two names, by a link or a mount: each of its logs would be found twice, and one of
    the two be removed. And one in another that is named like a partition (/data, /data/disk-1): it would be
    set aside as one that nobody knows. Raises FatalError."""
    names: dict[tuple[int, int], str] = {}
    for directory in _all_dirs(config):
        parent, name = os.path.split(directory)
        if parent in config.data_dirs and _LIKE_A_PARTITION.fullmatch(name):
            raise FatalError(
                ExitCode.LOG_DIR_UNUSABLE,
                f"{directory} has a name like a partition's in {parent}: call it otherwise (log.dirs)",
            )
    for directory in _all_dirs(config):
        try:
            found = os.stat(directory)
        except OSError:
            continue  # whoever reads it says so
        other = names.setdefault((found.st_dev, found.st_ino), directory)
        if other != directory:
            raise FatalError(
                ExitCode.LOG_DIR_UNUSABLE,
                f"{directory} is {other} by another name: name it once (log.dirs, metadata.log.dir)",
            )


def _all_dirs(config: Config) -> list[str]:
    return list(dict.fromkeys((*config.data_dirs, config.metadata_dir)))


def _read_meta(disk: Disk, directory: str) -> dict[str, str]:
    """The fields of a directory's meta.properties; none if there is no such file."""
    try:
        return _read_fields(disk, directory)
    except OSError as error:
        raise _cannot_read(directory, error) from None


def _cannot_read(directory: str, error: OSError) -> FatalError:
    return FatalError(ExitCode.LOG_DIR_UNUSABLE, f"cannot read {directory}: {error.strerror}")


def _read_fields(disk: Disk, directory: str) -> dict[str, str]:
    """As `_read_meta`. Raises OSError."""
    path = f"{directory}/{META_PROPERTIES}"
    meta = read_meta_properties(disk, path, NOT_SERVING)
    if disk.exists(path) and not {"cluster.id", "node.id"} <= meta.keys():
        raise FatalError(ExitCode.LOG_DIR_UNUSABLE, f"{path} is damaged: it names no cluster and node")
    return meta


def _check_meta(directory: str, meta: dict[str, str], cluster_id: str, node_id: int) -> None:
    if meta.get("cluster.id") != cluster_id:
        raise FatalError(
            ExitCode.WRONG_CLUSTER,
            f"{directory} belongs to cluster {meta.get('cluster.id')}, not to {cluster_id}",
        )
    if meta.get("node.id") != str(node_id):
        raise FatalError(
            ExitCode.WRONG_CLUSTER,
            f"{directory} belongs to node {meta.get('node.id')}, not to node {node_id}",
        )


def _id_in(meta: dict[str, str]) -> UUID | None:
    """None where there is none that can be read."""
    try:
        return parse_uuid(meta["directory.id"])
    except (KeyError, ValueError):
        return None


def _directory_id(directory: str, meta: dict[str, str]) -> UUID:
    found = _id_in(meta)
    if found is None:
        raise FatalError(
            ExitCode.LOG_DIR_UNUSABLE,
            f"{directory}/{META_PROPERTIES} has no readable directory.id: `kraft storage format "
            "--ignore-formatted` gives it one",
        )
    return found
