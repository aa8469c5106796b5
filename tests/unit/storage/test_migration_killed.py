"""`kraft storage export` and `import`, killed or without power at every disk operation, or on a full
disk: the command is repeated, and comes to the same end."""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable
from contextlib import nullcontext
from random import Random

import pytest

from kraft.storage import migration
from kraft.storage.formatter import hold_against_kafka
from kraft.storage.migration import Migrated, export_quorum, import_quorum
from kraft.storage.quorum_state import has_quorum_state, metadata_log_dir
from kraft.storage.stopped_log import read_stopped_log, sync_log
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.raft.identity import is_formatted
from tests.support.mortal_disk import DEAD, MortalDisk, crash_points, operations_of
from tests.support.stopped_quorum import StoppedQuorum

ALREADY = "directory of ours already|has been exported before"
Command = Callable[[StoppedQuorum], Migrated]


@pytest.fixture(autouse=True)
def _unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks are the operating system's."""
    monkeypatch.setattr(migration, "lock_storage", lambda config: [])


def before_export() -> StoppedQuorum:
    quorum = StoppedQuorum(MortalDisk(), "/disk")
    quorum.newest(partitions=2)
    quorum.write_journals()
    return quorum


def before_import() -> StoppedQuorum:
    """The first controller is behind, and the third has what never counted."""
    quorum = before_export()
    quorum.export()
    newest, behind, other = quorum.machines[1], quorum.machines[0], quorum.machines[2]
    newest.term = 12
    newest.create("later", 2)
    other.term, other.index = 11, newest.index + 1
    other.create("never", 4)
    behind.term = 11
    for config in quorum.configs:
        quorum.write_quorum_state(config, 12, (1, 2, 3))
        sync_log(quorum.disk, read_stopped_log(quorum.disk, metadata_log_dir(config)))
    return quorum


def export(quorum: StoppedQuorum) -> Migrated:
    return export_quorum(quorum.disk, quorum.configs)


def import_(quorum: StoppedQuorum) -> Migrated:
    return import_quorum(quorum.disk, quorum.configs, quorum.rng)


def copied(quorum: StoppedQuorum) -> StoppedQuorum:
    """With a disk of its own."""
    other = copy.copy(quorum)
    other.disk = copy.deepcopy(quorum.disk)
    return other


COMMANDS = [(before_export, export), (before_import, import_)]


def ended(quorum: StoppedQuorum, command: Command) -> bool:
    """Whether it was killed behind its last step."""
    ours = [is_formatted(quorum.disk, config.raft_dir) for config in quorum.configs]
    kafkas = [has_quorum_state(quorum.disk, config) for config in quorum.configs]
    return all(ours) and not any(kafkas) if command is import_ else not any(ours)


def check_done(quorum: StoppedQuorum, command: Command, whole: StoppedQuorum) -> None:
    """After a loss of power a log of ours may begin at Raft's snapshot."""
    wanted = whole.log_bytes(whole.configs[0])
    (found,) = {quorum.log_bytes(config) for config in quorum.configs}
    assert wanted.endswith(found)
    image = read_stopped_log(whole.disk, metadata_log_dir(whole.configs[0])).image()
    assert read_stopped_log(quorum.disk, metadata_log_dir(quorum.configs[0])).image() == image
    ours = command is import_
    for config in quorum.configs:
        assert is_formatted(quorum.disk, config.raft_dir) is ours
        assert has_quorum_state(quorum.disk, config) is not ours
        if ours:
            hold_against_kafka(quorum.disk, config)


@pytest.mark.parametrize("power", [True, False], ids=["killed", "power-lost"])
@pytest.mark.parametrize(("before", "command"), COMMANDS, ids=["export", "import"])
def test_a_command_that_breaks_off_is_repeated(
    before: Callable[[], StoppedQuorum], command: Command, power: bool
) -> None:
    prepared = before()
    whole = copied(prepared)
    operations = operations_of(_disk(whole), lambda: command(whole))
    assert len(operations) > 30
    for point in crash_points(operations):
        quorum = copied(prepared)
        disk = _disk(quorum)
        disk.die_after(point.operation, halfway=point.halfway)
        with pytest.raises(DEAD):
            command(quorum)
        disk.die_after(None)
        disk.kill()
        if not power:
            disk.power_loss(Random(point.operation))
        with pytest.raises(FatalError, match=ALREADY) if ended(quorum, command) else nullcontext():
            command(quorum)
        check_done(quorum, command, whole)


@pytest.mark.parametrize(("before", "command"), COMMANDS, ids=["export", "import"])
def test_a_full_disk_is_told_and_the_command_repeated(
    before: Callable[[], StoppedQuorum], command: Command
) -> None:
    prepared = before()
    whole = copied(prepared)
    appends = operations_of(_disk(whole), lambda: command(whole)).count("append")
    for after in range(appends):
        quorum = copied(prepared)
        _disk(quorum).fail("append", errno.ENOSPC, after=after)
        with pytest.raises(FatalError, match="No space left on device; try again"):
            command(quorum)
        command(quorum)
        check_done(quorum, command, whole)


def _disk(quorum: StoppedQuorum) -> MortalDisk:
    assert isinstance(quorum.disk, MortalDisk)
    return quorum.disk
