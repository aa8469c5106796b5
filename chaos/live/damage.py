"""Damage done to a node's files behind its back: tails torn as by a loss of power, bits flipped as by decay.

    tear_tail     the end of a partition's log, at any byte; the node must not be running
    tear_journal  a frame that the Raft journal was just being given; the node must not be running
    flip_bit      one bit of one batch, anywhere in a partition; whether the node runs or not

Power loss takes what was not fsynced, never what was: of a journal only what no message has depended on. And
it takes the page cache with it, so a torn partition's log directory loses its proof that it was kept.

Everything is chosen by the `Random` that is passed in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from data_plane.log import files
from data_plane.log.checkpoints import RUNNING
from metadata_quorum.foundation.batch import CRC_START, BatchHeader, iter_headers
from metadata_quorum.raft import journal

CUT: Final = "cut"
ZEROS: Final = "zeros"
GARBAGE: Final = "garbage"
WAYS: Final = (CUT, ZEROS, GARBAGE)
TORN_FRAME_BYTES: Final = 256
"""At most so much of one reached the journal."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done."""

    path: Path
    position: int
    """The first byte that is not what it was."""
    what: str

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}: {self.what} from byte {self.position} on"


def tear_tail(partition: Path, random: Random, *, way: str | None = None, batches: int = 1) -> Damage:
    """Tear the last segment of `partition` (a directory) somewhere within its last `batches` batches: the
    rest is missing, or holds zeros or garbage. Raises ValueError where there is no batch."""
    log = list(_logs(partition))[-1]
    starts = [position for position, _ in _batches(log)]
    if not starts:
        raise ValueError(f"{log} holds no batch that could be torn")
    size = log.stat().st_size
    # Not at the batch's first byte: there, nothing would be torn.
    position = random.randrange(starts[-min(batches, len(starts))] + 1, size)
    way = way or random.choice(WAYS)
    os.truncate(log, position)
    if way != CUT:
        with log.open("ab") as file:
            file.write(bytes(size - position) if way == ZEROS else random.randbytes(size - position))
    (partition.parent / RUNNING).unlink(missing_ok=True)
    return Damage(log, position, way)


def tear_journal(raft: Path, random: Random) -> Damage:
    """Leave the beginning of a frame at the end of the Raft journal in `raft` (a directory)."""
    path = raft / journal.FILE_NAME
    data = path.read_bytes()
    # It begins as a frame does, with an index that belongs elsewhere.
    frame = data[: random.randrange(1, min(len(data), TORN_FRAME_BYTES))]
    with path.open("ab") as file:
        file.write(frame)
    return Damage(path, len(data), f"{len(frame)} bytes of a torn frame")


def flip_bit(partition: Path, offset: int, random: Random) -> Damage:
    """Flip one bit of the batch that holds `offset`, in what its CRC covers. Raises ValueError where no
    batch holds it."""
    for log in _logs(partition):
        for position, header in _batches(log):
            if header.base_offset <= offset <= header.last_offset:
                at = position + random.randrange(CRC_START, header.size)
                with log.open("r+b") as file:
                    file.seek(at)
                    flipped = file.read(1)[0] ^ 1 << random.randrange(8)
                    file.seek(at)
                    file.write(bytes((flipped,)))
                return Damage(log, at, f"a bit flipped in the batch of offset {offset}")
    raise ValueError(f"no batch of {partition} holds offset {offset}")


def _logs(partition: Path) -> Iterator[Path]:
    yield from sorted(partition.glob(f"*{files.LOG}"))


def _batches(log: Path) -> Iterator[tuple[int, BatchHeader]]:
    yield from iter_headers(log.read_bytes())
