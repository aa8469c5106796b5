"""The methods of PySyncObj that are overridden, and those that are relied on, are the ones that were
read. An upgrade that changes any of them fails here first: read the change, then renew the hashes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import subprocess
import sys

import pysyncobj.syncobj
import pytest

from metadata_quorum.raft.syncobj import Core

OVERRIDDEN = (
    "_SyncObj__generateRaftTimeout",
    "_SyncObj__onMessageReceived",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__applyLogEntries",
    "_SyncObj__doApplyCommand",
    "_checkCommandsToApply",
    "_SyncObj__tryLogCompaction",
    "_SyncObj__loadDumpFile",
    "_SyncObj__onBecomeLeader",
    "_SyncObj__setState",
)
RELIED_ON = (
    "__init__",
    "_onTick",
    "doTick",
    "_SyncObj__setCurrentTerm",
    "_SyncObj__getEntries",
    "_SyncObj__getCurrentLogIndex",
    "_SyncObj__getCurrentLogTerm",
    "_SyncObj__connectedToAnyone",
    "_SyncObj__onLeaderChanged",
    "_isLeader",
)
HASHES = {
    "_SyncObj__generateRaftTimeout": "92ed37d3620e781a",
    "_SyncObj__onMessageReceived": "ddfe34b6c0282179",
    "_SyncObj__sendAppendEntries": "9cb9073128c392fa",
    "_SyncObj__doApplyCommand": "1ea7aa506e950d0a",
    "_checkCommandsToApply": "a386a8079361d204",
    "_SyncObj__tryLogCompaction": "c2f8a0ec14cc7312",
    "_SyncObj__loadDumpFile": "ec66e83905de703b",
    "_SyncObj__onBecomeLeader": "5a3fd97bc17dc1cf",
    "_SyncObj__setState": "2c1f239f7bd79b39",
    "__init__": "09df12cd7fd7d727",
    "_onTick": "cc9eb08232d005ba",
    "doTick": "bef78c2ba06d784b",
    "_SyncObj__applyLogEntries": "073db677773b5a2d",
    "_SyncObj__setCurrentTerm": "0ad5bf456ac06bd3",
    "_SyncObj__getEntries": "e29c4b33293b2101",
    "_SyncObj__getCurrentLogIndex": "e5af22ca246686bd",
    "_SyncObj__getCurrentLogTerm": "1cb8867e6a13d397",
    "_SyncObj__connectedToAnyone": "acd40e9e3ac6c4cc",
    "_SyncObj__onLeaderChanged": "53b7685e1d897887",
    "_isLeader": "56c32c31db26cdc0",
}


@pytest.mark.parametrize("name", OVERRIDDEN + RELIED_ON)
def test_source_is_the_one_that_was_read(name: str) -> None:
    source = inspect.getsource(getattr(pysyncobj.syncobj.SyncObj, name))
    assert hashlib.sha256(source.encode()).hexdigest()[:16] == HASHES[name]


def test_version_is_pinned() -> None:
    assert importlib.metadata.version("pysyncobj") == "0.3.17"


def test_every_override_is_listed() -> None:
    upstream = set(vars(pysyncobj.syncobj.SyncObj))
    overrides = {name for name in vars(Core) if name in upstream and not name.startswith("__")}
    assert overrides == set(OVERRIDDEN)


def test_the_process_keeps_its_sockets_functions():
    """PySyncObj brings replacements of its own, which know no IPv6 (metadata_quorum/raft/__init__.py)."""
    code = (
        "import metadata_quorum.raft.syncobj; from socket import AF_INET6, inet_ntop, inet_pton; "
        "print(inet_ntop(AF_INET6, inet_pton(AF_INET6, '::1')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "::1\n", done.stderr
