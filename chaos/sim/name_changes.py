"""Which names of a simulated disk are not durable yet.

    disk.py -> bind -------> the page cache
    sync_dir -> synced_with -> keep, or lose where it failed
    power_loss ------------> keep some, lose the rest

No change that is durable leaves an older one of the same names unsynced: a loss of power would put what a
name meant once in the place of what it durably means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.sim.disk_tree import Binding, DirectoryNode, NameChange, bind_name


class NameChanges:
    """The unsynced ones, of all directories."""

    def __init__(self) -> None:
        self._unsynced: dict[NameChange, None] = {}
        """In their order."""

    def all(self) -> Sequence[NameChange]:
        return list(self._unsynced)

    def bind(self, *bindings: Binding) -> None:
        """All at once: names mean something else from now on, or nothing."""
        change = NameChange(bindings)
        self._unsynced[change] = None
        for parent, name, meant in bindings:
            bind_name(parent.cache, name, meant)
            parent.unsynced[change] = None

    def synced_with(self, directory: DirectoryNode) -> Sequence[NameChange]:
        """What a sync of the directory writes, in order: its changes, and earlier ones of the other names in
        them. A rename to another directory is one transaction on ext4, XFS and Btrfs, and a sync of either
        directory writes it. (POSIX promises less: after a sync of one alone the file might have both names,
        or none. A file system that does so would lose what no program can keep.)"""
        if all(parent is directory for change in directory.unsynced for parent, _, _ in change.bindings):
            return list(directory.unsynced)
        written: set[tuple[DirectoryNode, str]] = set()
        found = []
        for change in reversed(self._unsynced):
            names = {(parent, name) for parent, name, _ in change.bindings}
            if change in directory.unsynced or not written.isdisjoint(names):
                written |= names
                found.append(change)
        return found[::-1]

    def keep(self, changes: Iterable[NameChange]) -> None:
        """Of these, what nobody else has settled meanwhile is durable now."""
        for change in changes:
            if self._settle(change):
                for parent, name, meant in change.bindings:
                    bind_name(parent.durable, name, meant)

    def lose(self, changes: Iterable[NameChange]) -> None:
        """No later sync writes them."""
        for change in changes:
            self._settle(change)

    def _settle(self, change: NameChange) -> bool:
        """Whether it was unsynced."""
        if change not in self._unsynced:
            return False
        del self._unsynced[change]
        for parent, _, _ in change.bindings:
            parent.unsynced.pop(change, None)
        return True
