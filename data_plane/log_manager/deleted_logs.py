"""What the last run was about to delete in a log directory.

It is emptied before the logs are opened, for the disk may be full. The names stay until the checkpoints say
no more of those logs. And each directory has lost its old name for certain before that: a loss of power that
brought the name back would bring a log that lacks any of its files, and may be taken for the better one of
two. Where the disk has failed, a name may be gone for the processes alone, and no sync writes that any more:
it is made once more, and removed (renewal.py).
Used by log_dirs.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from uuid import UUID

from data_plane.log.checkpoints import CheckpointError, read_partition_metadata
from data_plane.log.files import PARTITION_METADATA
from data_plane.log_manager import renewal
from data_plane.log_manager.directory_names import (
    DELETED,
    STRAY,
    directory_of,
    name_aside,
    partition_of,
    set_aside_as,
)
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition


class DeletedLogs:
    """Of one log directory, at one start."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._untagged: set[str] = set()
        """Their names, without their tags."""
        self._emptied: list[str] = []
        self._in_doubt: set[str] = set()
        """Paths of those whose old name may still be theirs on disk. What is left in them tells whose that
        is: nobody else takes it for its own."""

    def __contains__(self, tp: TopicPartition) -> bool:
        """Whether the last run was deleting it, and could not write its checkpoints any more: what runs
        before left was removed. A stray log stays for ever, and says nothing of later ones of its name."""
        return name_aside(tp, ZERO_UUID, DELETED) in self._untagged

    def empty(self, names: Iterable[str], may_block: MayBlock) -> None:
        """`names`: of the log directory's directories."""
        deleted = self._deleted_among(names)
        if deleted:
            self._disk.sync_dir(self._log_dir, may_block)
            self._remove_files(deleted, may_block)

    def empty_first(
        self, names: Collection[str], known: Iterable[TopicPartition], may_block: MayBlock
    ) -> None:
        """Where the disk has failed: not what has a namesake of the same topic, which has yet to be made
        anew. (Of another topic it may be: a topic that was deleted on a full disk, and created again.)
        `known`: to the checkpoints, for the topic in a long name is cut short."""
        old = _old_names(names, known)
        deleted = self._deleted_among(names)
        namesakes: dict[str, list[str]] = {}
        for name in names:
            if name not in deleted:
                namesakes.setdefault(old.get(name, name), []).append(name)
        lost = [name for name in deleted if old[name] not in namesakes]
        if lost:
            renewal.lose_names(self._disk, self._log_dir, [old[name] for name in lost], may_block)
        in_doubt = [
            name
            for name in deleted
            if old[name] in namesakes and self._is_of_another_topic(name, namesakes[old[name]], may_block)
        ]
        self._in_doubt.update(f"{self._log_dir}/{name}" for name in in_doubt)
        self._remove_files([*lost, *in_doubt], may_block)

    def lose_old_names(
        self, names: Collection[str], known: Iterable[TopicPartition], may_block: MayBlock
    ) -> None:
        """Of strays, too, which a person may remove. All names that are there are durable now."""
        self._in_doubt.clear()
        lost = {*_old_names(names, known).values()}.difference(names)
        if lost:
            renewal.lose_names(self._disk, self._log_dir, lost, may_block)

    def remove(self, may_block: MayBlock) -> None:
        """Now that the checkpoints say no more of them."""
        while self._emptied:
            path = self._emptied.pop()
            if path not in self._in_doubt:
                self._disk.remove_tree(path, may_block)

    def _deleted_among(self, names: Iterable[str]) -> Collection[str]:
        deleted = {name: tp for name, (tp, suffix) in _set_aside(names) if suffix == DELETED}
        self._untagged.update(name_aside(tp, ZERO_UUID, DELETED) for tp in deleted.values())
        return deleted

    def _is_of_another_topic(self, name: str, namesakes: Iterable[str], may_block: MayBlock) -> bool:
        """Than each of these, as far as that is to be read."""
        topics = [self._topic_of(each, may_block) for each in (name, *namesakes)]
        return None not in topics and topics[0] not in topics[1:]

    def _topic_of(self, name: str, may_block: MayBlock) -> UUID | None:
        """None where that is not to be read."""
        path = f"{self._log_dir}/{name}/{PARTITION_METADATA}"
        try:
            return read_partition_metadata(self._disk, path, may_block).topic_id
        except CheckpointError:
            return None

    def _remove_files(self, names: Iterable[str], may_block: MayBlock) -> None:
        for name in names:
            path = f"{self._log_dir}/{name}"
            if path not in self._emptied:
                for file in self._disk.sizes(path, may_block):
                    if file != PARTITION_METADATA:  # under any name it tells whose it was
                        self._disk.remove(f"{path}/{file}")
                self._emptied.append(path)


def _set_aside(names: Iterable[str]) -> list[tuple[str, tuple[TopicPartition, str]]]:
    return [(name, found) for name in names if (found := set_aside_as(name)) is not None]


def _old_names(names: Collection[str], known: Iterable[TopicPartition]) -> dict[str, str]:
    """Of what is set aside, by its present name."""
    leaving = _set_aside(names)
    suffixes = (DELETED, STRAY) if leaving else ()
    whole_names = chain(known, filter(None, map(partition_of, names)))
    whole = {name_aside(tp, ZERO_UUID, suffix): tp for tp in whole_names for suffix in suffixes}
    found = {name: whole.get(name_aside(tp, ZERO_UUID, suffix), tp) for name, (tp, suffix) in leaving}
    return {name: directory_of(tp) for name, tp in found.items()}
