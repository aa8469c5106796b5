"""The directories of three controllers that have been stopped, as `kraft storage export` and `import` find
them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from kraft.config.node_config import Config
from kraft.storage.formatter import format_storage
from kraft.storage.migration import Migrated, export_quorum, import_quorum
from kraft.storage.quorum_state import metadata_log_dir
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.metadata_log import MetadataLog
from metadata_quorum.metadata.records import MetadataRecord, encode
from metadata_quorum.raft.identity import is_formatted
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.messages import EntryKind
from metadata_quorum.raft.snapshots import Snapshot, SnapshotStore
from tests.support.metadata_machine import MetadataMachine

VOTERS = (1, 2, 3)
TERM = 9
"""The voters' newest; the metadata's is 3 at most."""
_COMMAND = bytes([EntryKind.COMMAND])


class StoppedQuorum:
    """Voters 1, 2 and 3, with the metadata that each has applied. Raft's log is written when they are
    exported: each voter's has what it applied."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.rng = random.Random(1)
        self.configs = [
            Config.from_properties(
                {
                    "process.roles": "controller",
                    "node.id": str(node_id),
                    "controller.quorum.voters": "1@a:1,2@a:2,3@a:3",
                    "listeners": "CONTROLLER://:9093",
                    "controller.listener.names": "CONTROLLER",
                    "log.dirs": f"{root}/node-{node_id}",
                }
            )
            for node_id in VOTERS
        ]
        self.machines: list[MetadataMachine] = []
        self._snapshot: Snapshot | None = None
        """The second one's."""
        for config in self.configs:
            format_storage(disk, config, "cluster-1", self.rng, new_cluster=True)
            machine = MetadataMachine(disk, metadata_log_dir(config), segment_bytes=2_000)
            machine.claim()
            machine.brokers(1, 2, 3)
            self.machines.append(machine)

    def newest(self, partitions: int = 40) -> MetadataMachine:
        """The second one, which has applied more than the others."""
        machine = self.machines[1]
        machine.create("flights", partitions, 3)
        machine.term = 3
        machine.claim(2)
        index = machine.index + 1
        self._snapshot = Snapshot.of(index, machine.term, 0, machine.machine.snapshot()())
        machine.set_config(ResourceType.BROKER, "", "log.retention.ms", "1000")
        return machine

    def write_journals(self) -> None:
        for config, machine in zip(self.configs, self.machines, strict=True):
            if not is_formatted(self.disk, config.raft_dir):
                continue
            journal = RaftJournal(self.disk, config.raft_dir)
            if journal.last_index == 1:
                journal.setCurrentTerm(TERM - 3 + config.node_id, None)
                for index, term, command in machine.history:
                    journal.add(_COMMAND + command, index + 1, term)
                journal.sync()
            journal.close()
        if self._snapshot is not None and is_formatted(self.disk, self.configs[1].raft_dir):
            SnapshotStore(self.disk, self.configs[1].raft_dir).save(self._snapshot)

    def export(self) -> Migrated:
        """Afterwards the machines write on as Apache Kafka's controllers would."""
        self.write_journals()
        done = export_quorum(self.disk, self.configs)
        newest = max((machine.image for machine in self.machines), key=lambda image: image.offset)
        for config, machine in zip(self.configs, self.machines, strict=True):
            machine.log.close()
            machine.machine.image = newest
            machine.machine.log = MetadataLog(self.disk, metadata_log_dir(config))
            machine.log.rewind(done.end_offset, newest.epoch)
        return done

    def import_(self) -> Migrated:
        return import_quorum(self.disk, self.configs, self.rng)

    def append(self, *records: MetadataRecord | bytes) -> None:
        """To all logs, as Apache Kafka's controllers would have."""
        values = [each if isinstance(each, bytes) else encode(each) for each in records]
        stored = [Record(timestamp=1, value=value) for value in values]
        for config, machine in zip(self.configs, self.machines, strict=True):
            offset = machine.log.end_offset
            machine.log.append(encode_batch(stored, base_offset=offset, leader_epoch=TERM + 2))
            self.write_quorum_state(config, TERM + 1 + config.node_id, VOTERS)

    def write_quorum_state(self, config: Config, epoch: int, voters: Sequence[int]) -> None:
        """As Apache Kafka's controller leaves it."""
        state = {
            "leaderEpoch": epoch,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
        path = f"{metadata_log_dir(config)}/quorum-state"
        self.disk.write_atomic(path, json.dumps(state).encode(), NOT_SERVING)

    def log_bytes(self, config: Config) -> bytes:
        directory = metadata_log_dir(config)
        names = [name for name in self.disk.list(directory, NOT_SERVING) if name.endswith(".log")]
        return b"".join(self.disk.read_bytes(f"{directory}/{name}", NOT_SERVING) for name in names)
