"""Damage to a partition's files behind the back of a node that is down, as chaos/live/damage.py does it.

flip_bit    one bit in the batch in the middle of its log, behind which good data lies
remove      all that a node holds of it
"""

from __future__ import annotations

from random import Random
from typing import Final

from chaos.simulator.machine import LOG, MachineDisk
from metadata_quorum.foundation.batch import CRC_START, iter_headers
from metadata_quorum.foundation.blocking import MayBlock

SIMULATED: Final = MayBlock("a simulated disk waits for nothing when an operator is at it")
LEAST_BATCHES: Final = 3
"""Fewer have no middle."""


def flip_bit(disk: MachineDisk, partition: str, random: Random) -> str:
    """In what the batch's CRC covers; what was done. `partition`: its directory. Raises ValueError where it
    has too few batches."""
    found = [
        (path, position, header)
        for name, size in disk.sizes(partition, SIMULATED).items()
        if name.endswith(LOG)
        for path in [f"{partition}/{name}"]
        for position, header in iter_headers(disk.cached(path, 0, size))
    ]
    if len(found) < LEAST_BATCHES:
        raise ValueError(f"{partition} has {len(found)} batches: there is no middle")
    path, position, header = found[len(found) // 2]
    at = position + random.randrange(CRC_START, header.size)
    disk.flip_bit(path, at)
    return f"{path}: a bit flipped in the batch of offset {header.base_offset} from byte {at} on"


def remove(disk: MachineDisk, partition: str) -> None:
    """`partition`: its directory."""
    disk.remove_tree(partition, SIMULATED)
