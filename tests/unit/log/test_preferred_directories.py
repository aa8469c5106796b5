"""The directory that is chosen for a replica before it is here."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from data_plane.log.config import LogConfig
from data_plane.log_manager import log_manager
from data_plane.log_manager.log_manager import LogManager
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition

pytestmark = pytest.mark.row("P7")


class Directory(SimpleNamespace):
    """Itself only."""

    __hash__ = object.__hash__


def test_of_very_many_those_that_were_chosen_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client names partitions that there are not, and each name was kept for ever."""
    monkeypatch.setattr(log_manager, "MOST_PREFERRED", 2)
    usual, chosen = (Directory(path=path, online=True) for path in ("usual", "chosen"))
    dirs: Any = [usual, chosen]
    failures: Any = SimpleNamespace(fail=None, subscribe=lambda failed: None)
    unused: Any = None
    logs = LogManager(dirs, unused, failures, unused, random.Random(1), lambda: 0)
    partitions = [TopicPartition("t", number) for number in range(3)]
    for each in (*partitions[:2], partitions[0], partitions[2]):
        logs.prefer_dir(each, dirs[1])
    registration = PartitionRegistration((1,), (1,), 1, 0, 0)
    new = [(each, UUID(int=1), registration, LogConfig()) for each in partitions]
    assert [each.directory.path for each in logs.place(new, 1)] == ["chosen", "usual", "chosen"]
