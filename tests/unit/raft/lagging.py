"""A follower that needs the leader's snapshot, because the leader's log starts behind what it lacks."""

from __future__ import annotations

from metadata_quorum.raft.config import RaftConfig
from tests.unit.raft.rig import Rig

CHUNKED = RaftConfig(snapshot_entries=10, snapshot_chunk_bytes=16)


def some_values(count: int, start: int = 0) -> list[bytes]:
    return [b"value-%d" % n for n in range(start, start + count)]


def lagging_follower(config: RaftConfig = CHUNKED) -> tuple[Rig, list[bytes]]:
    """2 leads with a snapshot; 1 has a tail of ghosts that never committed."""
    rig = Rig(config=config)
    rig.elect(1)
    rig.cut_between((1,), (2, 3))
    rig.propose(1, *(b"ghost-%d" % n for n in range(5)))
    rig.tick(1)
    rig.elect(2, 2, 3)
    values = some_values(20)
    rig.propose(2, *values)
    rig.settle(2, 3)
    assert rig.rafts[2].journal.base_index > 10
    rig.cut.clear()
    rig.drop_all()
    rig.rafts[1].disconnected(2, broken=False)
    rig.rafts[2].disconnected(1, broken=False)
    rig.rafts[2].connected(1)
    rig.rafts[1].connected(2)
    return rig, values
