"""The replicated state machine: committed commands in, metadata records and replies out.

    Raft -> apply(index, term, bytes) -> decode -> stale? -> decide on the committed image
         -> one batch on the metadata log -> next image -> subscribers(delta, image) -> reply

`apply` is deterministic and never raises: a command that is not allowed gets a `Refused` as its
reply, and a command that would break an invariant is turned down whole, before anything of it is
adopted, because every node would break it again at every restart. Only this node's own failure
ends it, and the voter with it: an `OSError` of its disk (the log is derived, but a node that cannot write
cannot continue), or lack of memory. To refuse a command for that would be to decide it
differently from the others.

The rolling hash over applied commands and the batches they gave is equal on every node: the
voters compare it, so that versions that decide differently stop instead of diverging.

    snapshot:  int8 1 | int64 end offset | int32 epoch | 16 bytes rolling hash | checkpoint
"""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from metadata_quorum.decisions.decision import Decision
from metadata_quorum.decisions.table import decide, weight
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation, invariant
from metadata_quorum.metadata.control_records import LeaderChangeMessage, Voter, encode_control
from metadata_quorum.metadata.delta import MetadataDelta, check_partition
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.metadata_log import MetadataLog, SnapshotId
from metadata_quorum.metadata.records import encode
from metadata_quorum.metadata.snapshot import decode_checkpoint, encode_checkpoint
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol import stamped_command
from metadata_quorum.protocol.replies import Claimed, Refused, Reply
from metadata_quorum.raft.port import QUICK_WEIGHT

log = logging.getLogger(__name__)

Listener = Callable[[MetadataDelta, MetadataImage], None]
Preparing = Callable[[MetadataImage], None]

_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = struct.Struct(">bqi16s")  # version, end offset, epoch, rolling hash
_POSITION: Final = struct.Struct(">qq")  # index, term

QUICK_BYTES: Final = 16_384
"""A command of this length names some 500 partitions."""
_BYTES_OF_ONE: Final = 32


@dataclass(frozen=True, slots=True)
class _DecidedCommand:
    """A command, and what comes of it."""

    index: int
    term: int
    delta: MetadataDelta
    image: MetadataImage
    decision: Decision
    batches: list[bytes]
    rolling_hash: bytes


def _snapshot_head(image: MetadataImage, rolling_hash: bytes) -> bytes:
    return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, image.offset + 1, image.epoch, rolling_hash)


def first_snapshot(image: MetadataImage) -> bytes:
    """The snapshot of a quorum that begins with metadata from elsewhere; the same bytes for all of its
    voters."""
    return _snapshot_head(image, bytes(16)) + encode_checkpoint(image)


class LeadershipListener(Protocol):
    """Called when this node begins and ends to lead: the controller."""

    def became_leader(self, term: int) -> None: ...

    def claimed(self, leader_id: int, term: int) -> None:
        """A controller's claim was applied, however long after it was made."""

    def lost_leadership(self, term: int) -> None: ...


def _raise_fault(work: str, error: Exception) -> None:
    raise error


class MetadataStateMachine:
    """Implements `raft.port.StateMachine`. One per controller node."""

    def __init__(
        self,
        metadata_log: MetadataLog,
        on_fault: Callable[[str, Exception], None] = _raise_fault,
    ) -> None:
        """`on_fault` is called for a listener that failed; the others are called all the same."""
        self.log = metadata_log
        self.image = EMPTY_IMAGE
        self.applied_index = 0
        self.applied_term = 0
        self.rolling_hash = bytes(16)
        self.leadership: LeadershipListener | None = None
        self._listeners: list[Listener] = []
        self._preparing: list[Preparing] = []
        self._on_fault = on_fault
        self._rewound = False

    def subscribe(self, listener: Listener, prepare: Preparing | None = None) -> None:
        """Call `listener` at once with what is there already (a restored snapshot), then with every
        change, in order, after it is committed. `prepare`: called in another thread, before the listener is
        called with the image of a snapshot."""
        self._listeners.append(listener)
        if prepare is not None:
            self._preparing.append(prepare)
        if self.image is not EMPTY_IMAGE:
            listener(MetadataDelta.between(EMPTY_IMAGE, self.image), self.image)

    # -- raft.port.StateMachine ---------------------------------------------------

    def apply(self, index: int, term: int, command: bytes) -> Reply:
        """Take one committed command; returns the reply."""
        return self._adopt(self._decided(index, term, command))

    def weight(self, command: bytes) -> int:
        """The weight of a command on the present image. A long command is not decoded for that."""
        if len(command) > QUICK_BYTES:
            return max(len(command) // _BYTES_OF_ONE, QUICK_WEIGHT + 1)
        try:
            return weight(self.image, stamped_command.decode(command).command)
        except Exception:  # noqa: BLE001 - to decide it fails too, and refuses it
            return QUICK_WEIGHT + 1

    def prepare(self, index: int, term: int, command: bytes) -> Callable[[], Reply]:
        """Beside the loop: the image that it is decided on does not change meanwhile."""
        return partial(self._adopt, self._decided(index, term, command))

    def _adopt(self, decided: _DecidedCommand) -> Reply:
        """Apply what was decided; returns the reply."""
        self._rewind_once()
        for batch in decided.batches:
            self.log.append(batch)
        self.applied_index, self.applied_term = decided.index, decided.term
        self.rolling_hash = decided.rolling_hash
        decision, term = decided.decision, decided.term
        if decided.batches:
            self.image = decided.image
            self._notify(decided.delta)
        if isinstance(decision.reply, Claimed) and self.leadership is not None:
            self.leadership.claimed(decision.reply.leader_id, term)
        return decision.reply

    def snapshot(self) -> Callable[[], bytes]:
        """The whole state; a `.checkpoint` file is kept beside the log as a by-product."""
        image = self.image
        snapshot_id = SnapshotId(image.offset + 1, max(image.epoch, 0))
        head = _snapshot_head(image, self.rolling_hash)
        self._rewind_once()

        def encode() -> bytes:
            checkpoint = encode_checkpoint(image)
            self.log.write_checkpoint(snapshot_id, checkpoint)
            return head + checkpoint

        return encode

    def restore(self, data: bytes, index: int, term: int) -> Callable[[], None]:
        """Replace everything by a snapshot; raises `ValueError` where it is not one of ours."""
        if len(data) < _SNAPSHOT_HEAD.size or data[0] != _SNAPSHOT_VERSION:
            raise ValueError("not a metadata snapshot")
        _, end_offset, epoch, rolling_hash = _SNAPSHOT_HEAD.unpack_from(data)
        checkpoint = memoryview(data)[_SNAPSHOT_HEAD.size :]
        image = decode_checkpoint(checkpoint, end_offset, epoch)
        before = self.image
        delta = MetadataDelta.between(before, image)
        for prepare in self._preparing:
            prepare(image)
        self.log.write_checkpoint(SnapshotId(end_offset, max(epoch, 0)), checkpoint)

        def adopt() -> None:
            self.log.rewind(end_offset, epoch)
            self._rewound = True
            self.applied_index, self.applied_term, self.rolling_hash = index, term, rolling_hash
            changes = delta if self.image is before else MetadataDelta.between(self.image, image)
            self.image = image
            self._notify(changes)

        return adopt

    def became_leader(self, term: int) -> None:
        if self.leadership is not None:
            self.leadership.became_leader(term)

    def lost_leadership(self, term: int) -> None:
        if self.leadership is not None:
            self.leadership.lost_leadership(term)

    # -- inside -------------------------------------------------------------------

    def _decided(self, index: int, term: int, command: bytes) -> _DecidedCommand:
        """All that follows from a command; nothing is changed."""
        delta, decision, batches = self._decide(term, command)
        digest = hashlib.blake2b(self.rolling_hash, digest_size=16)
        digest.update(_POSITION.pack(index, term))
        digest.update(command)
        for batch in batches:
            digest.update(batch)
        image = delta.apply() if batches else self.image
        return _DecidedCommand(index, term, delta, image, decision, batches, digest.digest())

    def _decide(self, term: int, command: bytes) -> tuple[MetadataDelta, Decision, list[bytes]]:
        """The delta, the decision and the batches of a command; nothing is changed."""
        try:
            proposal = stamped_command.decode(command)
            if proposal.controller_epoch != term:
                message = f"proposed in term {proposal.controller_epoch}, committed in {term}"
                raise BrokerError(ErrorCode.NOT_CONTROLLER, message)
            delta = MetadataDelta(self.image)
            delta.epoch, delta.timestamp_ms = term, proposal.now_ms
            batches = []
            if isinstance(proposal.command, c.ClaimLeadership):
                batches.append(self._leader_change(delta, proposal.command, proposal.now_ms))
            decision = decide(self.image, proposal.command)
            if decision.records:
                batches.append(self._data_batch(delta, decision, proposal.now_ms))
            self._check(delta)
        except BrokerError as e:
            return self._refusal(e.code, e.message)
        except InvariantViolation as e:
            log.critical("command refused: %s", e)
            return self._refusal(ErrorCode.UNKNOWN_SERVER_ERROR, str(e))
        except MemoryError:
            raise
        except Exception as e:
            log.critical("command refused, deciding on it failed", exc_info=True)
            return self._refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(e).__name__}: {e}")
        return delta, decision, batches

    def _refusal(self, code: ErrorCode, message: str) -> tuple[MetadataDelta, Decision, list[bytes]]:
        return MetadataDelta(self.image), Decision(reply=Refused(code, message)), []

    def _leader_change(self, delta: MetadataDelta, claim: c.ClaimLeadership, now_ms: int) -> bytes:
        voters = tuple(Voter(voter_id=v) for v in claim.voters)
        key, value = encode_control(
            LeaderChangeMessage(leader_id=claim.leader_id, voters=voters, granting_voters=voters)
        )
        records = [Record(timestamp=now_ms, key=key, value=value)]
        delta.offset += 1
        return encode_batch(records, base_offset=delta.offset, leader_epoch=delta.epoch, control=True)

    def _data_batch(self, delta: MetadataDelta, decision: Decision, now_ms: int) -> bytes:
        for record in decision.records:
            delta.replay(record)
        values = [Record(timestamp=now_ms, value=encode(record)) for record in decision.records]
        base = delta.offset + 1
        delta.offset += len(values)
        return encode_batch(values, base_offset=base, leader_epoch=delta.epoch)

    def _check(self, delta: MetadataDelta) -> None:
        """The invariants of all partitions that changed, and the controller epoch's order."""
        invariant(
            delta.epoch >= self.image.epoch,
            Invariant.TERM_AND_COMMIT_MONOTONIC,
            (delta.epoch, self.image.epoch),
        )
        for topic_id, changed in delta.changed_partitions.items():
            topic = self.image.topics_by_id.get(topic_id)
            for partition_id, after in changed.items():
                before = None if topic is None else topic.partitions.get(partition_id)
                check_partition((topic_id, partition_id), before, after)

    def _notify(self, delta: MetadataDelta) -> None:
        for listener in self._listeners:
            try:
                listener(delta, self.image)
            except Exception as e:  # noqa: BLE001
                self._on_fault(f"acting on the metadata up to offset {delta.offset}", e)

    def _rewind_once(self) -> None:
        """Without a snapshot, derive the log from its very beginning."""
        if not self._rewound:
            self._rewound = True
            self.log.rewind(0, -1)
