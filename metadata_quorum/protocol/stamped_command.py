"""A command in Raft's log: with what its proposer stamped on it, as bytes.

    uvarint command type | uvarint version | varlong controller epoch | varlong now_ms | struct

The controller epoch is the Raft term in which the proposer led. A command that was queued by a
deposed controller and committed by its successor is refused, since the two terms differ.

Path of the data: controller/controller.py -> encode -> Raft's journals -> decode -> state_machine.apply.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from metadata_quorum.foundation.codec import decode_with
from metadata_quorum.foundation.primitives import Buffer, Reader, varlong
from metadata_quorum.protocol.commands import COMMANDS, Command


class StampedCommand(NamedTuple):
    """A command with the proposer's stamps."""

    controller_epoch: int
    now_ms: int
    """The proposer's clock: milliseconds since the epoch."""
    command: Command[object]


def encode(proposal: StampedCommand) -> bytes:
    """The bytes that go into Raft's log."""
    out = bytearray()
    row = COMMANDS.write_type(out, proposal.command)
    out += varlong(proposal.controller_epoch)
    out += varlong(proposal.now_ms)
    row.schema.write(out, proposal.command, row.version)
    return bytes(out)


def decode(data: Buffer) -> StampedCommand:
    """The inverse of `encode`. Raises `ValueError` for anything it could not have come from."""
    return decode_with(_read, data)


def _read(reader: Reader) -> StampedCommand:
    schema, version = COMMANDS.read_type(reader)
    epoch, now_ms = reader.varlong(), reader.varlong()
    return StampedCommand(epoch, now_ms, cast(Command[object], schema.read(reader, version)))
