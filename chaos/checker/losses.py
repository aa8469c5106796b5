"""Losses: values that were committed and never read, acknowledged and not in the final read, or read once
and not by every final reader; and offsets where a final reader found nothing at all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from chaos.checker.anomalies import LOST_WRITE, OFFSET_GAP, UNSEEN, VANISHED_READ
from chaos.checker.observations import FinalReader, Observations, PartitionObservations, Sent
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrder, VersionOrders


def check_losses(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    for key, partition in seen.partitions.items():
        _lost_writes(seen, partition, orders[key], findings)
        if UNSEEN.name not in findings.not_judged:
            _unseen(seen, partition, orders[key], findings)
        for reader in seen.final_readers:
            if key in reader.keys:
                _vanished_reads(partition, orders[key], reader, findings)
                _offset_gaps(partition, reader, findings)


def _lost_writes(
    seen: Observations, partition: PartitionObservations, order: VersionOrder, findings: Findings
) -> None:
    """A value may have several indexes. The bound uses the first one of each value that was read, a loss the
    value's last one: so ambiguity never counts as loss."""
    if not partition.read:
        return
    furthest = max(partition.read, key=order.first.__getitem__)
    bound = order.first[furthest]
    behind = {
        value
        for value in partition.sent
        if value not in partition.read
        and value not in order.superseded
        and (last := order.last.get(value)) is not None
        and last <= bound
        and seen.committed(seen.senders[value])
    }
    proven = {value for value in behind if not seen.acknowledged(seen.senders[value])}
    for value in sorted(behind - partition.shown_of(proven)):
        sent = seen.senders[value]
        reader = partition.read[furthest]
        findings.add(
            LOST_WRITE,
            partition.key,
            f"{_claim(seen, value, sent)}; no successful poll returned it, though op {reader} read on to "
            f"value {furthest} at offset {order.offsets[bound]}",
            [sent.op, reader],
            value=value,
            offset=order.offsets[order.last[value]],
        )


def _unseen(
    seen: Observations, partition: PartitionObservations, order: VersionOrder, findings: Findings
) -> None:
    final = PartitionFinalRead.of(
        partition, [each for each in seen.final_readers if partition.key in each.keys]
    )
    for value in partition.sent:
        sent = seen.senders[value]
        if value in partition.read or value in order.superseded or not seen.acknowledged(sent):
            continue
        findings.add(
            UNSEEN,
            partition.key,
            f"{_claim(seen, value, sent)}; no successful poll returned it, and {final.around(sent.offset)}",
            [sent.op, *final.witnesses(sent.offset)],
            value=value,
            offset=sent.offset,
        )


def _vanished_reads(
    partition: PartitionObservations, order: VersionOrder, reader: FinalReader, findings: Findings
) -> None:
    final = PartitionFinalRead.of(partition, [reader])
    found = reader.found.get(partition.key, {})
    suspects = (partition.polled.keys() - found.keys()) | partition.disagreeing.keys()
    for offset in sorted(suspects):
        for value, sighting in partition.values_at(offset).items():
            is_first = value == partition.polled[offset]
            is_there = offset in found if is_first else reader.number in sighting.final
            if is_there or value in order.superseded:
                continue
            findings.add(
                VANISHED_READ,
                partition.key,
                f"value {value} was polled at offset {offset} of {partition.key} (op {sighting.op}) "
                f"and is not there any more: {final.around(offset)}",
                [sighting.op, *final.witnesses(offset)],
                value=value,
                offset=offset,
                reader=reader.process,
            )


def _offset_gaps(partition: PartitionObservations, reader: FinalReader, findings: Findings) -> None:
    if partition.mode.transactional or partition.mode.compacted:
        return
    final = PartitionFinalRead.of(partition, [reader])
    expected = 0
    for offset in final.offsets:
        if offset > expected:
            findings.add(
                OFFSET_GAP,
                partition.key,
                f"process {reader.process} read {partition.key} from its beginning and found nothing at "
                f"offset {expected}, the next record at {offset} (op {final.ops[offset]})",
                [reader.number, final.ops[offset]],
                offset=expected,
                found=offset,
                reader=reader.process,
            )
        expected = offset + 1


def _claim(seen: Observations, value: int, sent: Sent) -> str:
    operation = seen.operations[sent.op]
    how = "acknowledged to" if seen.acknowledged(sent) else "committed for"
    where = sent.key if sent.offset is None else f"offset {sent.offset} of {sent.key}"
    return f"value {value} was {how} process {operation.process} at {where} (op {sent.op})"


@dataclass(frozen=True, slots=True)
class PartitionFinalRead:
    """What final readers saw of one partition."""

    key: str
    reached: bool  # it was read at all
    offsets: list[int]
    ops: dict[int, int]  # offset -> operation that polled it

    @classmethod
    def of(cls, partition: PartitionObservations, readers: Sequence[FinalReader]) -> Self:
        ops: dict[int, int] = {}
        for reader in readers:
            ops |= reader.found.get(partition.key, {})
            for offset, sightings in partition.disagreeing.items():
                for sighting in sightings.values():
                    if reader.number in sighting.final:
                        ops.setdefault(offset, sighting.final[reader.number])
        return cls(partition.key, bool(readers), sorted(ops), ops)

    def around(self, offset: int | None) -> str:
        """What it saw near an offset where something is missing."""
        if not self.reached:
            return f"the final phase did not read {self.key}"
        if not self.offsets:
            return f"the final read found {self.key} empty"
        if offset is None:
            return f"the final read saw offsets {self.offsets[0]} to {self.offsets[-1]}"
        if offset in self.ops:
            return f"the final read saw another value at {offset}"
        index = bisect_left(self.offsets, offset)
        if index == len(self.offsets):
            return f"the final read ended at {self.offsets[-1]}"
        if index == 0:
            return f"the final read began at {self.offsets[0]}"
        return f"the final read saw {self.offsets[index - 1]} and {self.offsets[index]}"

    def witnesses(self, offset: int | None) -> list[int]:
        """Its polls on both sides of an offset."""
        if offset is None:
            return []
        index = bisect_left(self.offsets, offset)
        return [self.ops[near] for near in self.offsets[max(0, index - 1) : index + 1]]
