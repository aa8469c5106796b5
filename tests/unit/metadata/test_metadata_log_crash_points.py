"""The metadata log dies at any of its disk operations, by a kill or by a loss of power, and again while the
next start recovers. What it holds is derived from Raft's log: whatever is left of it, it rewinds to the end
of Raft's snapshot, takes the rest once more, and is then as if nothing had happened.
"""

from __future__ import annotations

import copy
from random import Random

import pytest

from chaos.sim.disk import SimDisk
from metadata_quorum.metadata.metadata_log import MetadataLog, SnapshotId
from tests.support.may_block import MAY_BLOCK
from tests.support.mortal_disk import DEAD, MortalDisk, crash_points, operations_of
from tests.unit.metadata.metadata_batches import DIRECTORY, batch

SNAPSHOTS = (6, 12, 18)
END = 22
SEGMENT_BYTES = 300


def state_at(offset: int) -> bytes:
    return b"everything below %d" % offset


def opened(disk: SimDisk, snapshot: int) -> MetadataLog:
    log = MetadataLog(disk, DIRECTORY, segment_bytes=SEGMENT_BYTES)
    log.rewind(snapshot, epoch_of(snapshot - 1))
    return log


def epoch_of(offset: int) -> int:
    return offset // 5 if offset >= 0 else -1


def derived(log: MetadataLog, *, upto: int = END) -> None:
    """As apply does it, with its checkpoints on the way."""
    while log.end_offset < upto:
        offset = log.end_offset
        if offset in SNAPSHOTS:
            log.write_checkpoint(SnapshotId(offset, epoch_of(offset - 1)), state_at(offset))
        log.append(batch(offset, epoch=epoch_of(offset)))


def judge(log: MetadataLog, snapshot: int) -> None:
    assert log.end_offset == END
    newest = log.latest_checkpoint
    assert log.start_offset <= (newest.end_offset if newest is not None else 0)
    assert newest is not None
    assert newest.end_offset >= snapshot
    assert log.last_epoch == epoch_of(END - 1)
    for offset in range(log.start_offset, END):
        assert log.read(offset, 1) == batch(offset, epoch=epoch_of(offset))
    for each in log.checkpoints:
        size, data = log.checkpoint(each).piece(0, 1 << 20, MAY_BLOCK)
        assert data == state_at(each.end_offset)
        assert size == len(data)


@pytest.mark.row("Q3")
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("again", [0, *[pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3)]])
def test_it_is_derived_again_whenever_it_dies(power: bool, again: int) -> None:
    """`snapshot`: how far Raft had one; it is written before the metadata log hears of it."""
    for snapshot in (0, *SNAPSHOTS):
        origin = MortalDisk()
        if snapshot:
            derived(opened(origin, 0), upto=snapshot + 2)
            origin.kill()
        whole = copy.deepcopy(origin)
        operations = operations_of(whole, lambda: derived(opened(whole, snapshot)))  # noqa: B023
        for point in crash_points(operations):
            for second in range(1 if not again else 9):
                disk = copy.deepcopy(origin)
                disk.die_after(point.operation, halfway=point.halfway)
                random = Random(f"{point}/{second}")
                for life in range(again + 2):
                    try:
                        log = opened(disk, snapshot)
                        derived(log)
                        break
                    except DEAD:
                        disk.power_loss(random) if power else disk.kill()
                        disk.die_after(second + 3 * life if life < again else None, halfway=life % 2 == 1)
                else:
                    raise AssertionError("it dies once too often")
                judge(log, snapshot)
