"""Version orders: one log per partition, reconstructed from all observations of it.

Polls count whatever the outcome of their operation: a consumer never gets records that may still be
truncated. Offsets in acks count where the send is known to be committed, and only at acks=all: below that, a
leader may ack an offset and lose the record. Index 0 is the first offset that any client observed.

Also found here: different values at one offset, and values at several offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chaos.checker.anomalies import DUPLICATE, INCONSISTENT_OFFSETS, SEND_POLL_MISMATCH
from chaos.checker.observations import Observations, PartitionObservations, Sent
from chaos.checker.verdict import Findings
from chaos.history import ACKS_ALL


@dataclass(slots=True)
class VersionOrder:
    offsets: list[int]  # by index
    values: list[int]  # by index; where values disagree, the smallest
    index: dict[int, int]  # by offset
    first: dict[int, int]  # value -> its first index
    last: dict[int, int]  # value -> the last one
    superseded: set[int] = field(default_factory=set)  # values that compaction may have removed

    def between(self, low: int, high: int) -> list[tuple[int, int]]:
        """(offset, value) pairs strictly between two indexes."""
        return list(zip(self.offsets[low + 1 : high], self.values[low + 1 : high], strict=True))


VersionOrders = dict[str, VersionOrder]


def version_orders(seen: Observations) -> VersionOrders:
    """What is committed."""
    return {
        key: _order(seen, partition, *_placed(seen, partition)) for key, partition in seen.partitions.items()
    }


def uncommitted_orders(seen: Observations) -> VersionOrders:
    """Of topics with a reader of uncommitted records: committed and uncommitted values. What was
    acknowledged is in the log, whatever became of its transaction."""
    orders = {}
    for key, uncommitted in seen.uncommitted.items():
        value_at, also_at = _placed(seen, seen.partitions[key])
        for value, sent in _with_offsets(seen, seen.partitions[key]):
            assert sent.offset is not None
            _place(value_at, also_at, sent.offset, value)
        for offset in uncommitted.polled:
            for value in uncommitted.values_at(offset):
                _place(value_at, also_at, offset, value)
        orders[key] = _order(seen, seen.partitions[key], value_at, also_at)
    return orders


def _placed(
    seen: Observations, partition: PartitionObservations
) -> tuple[dict[int, int], dict[int, set[int]]]:
    """The value at each offset; and others there, where something is wrong."""
    value_at = dict(partition.polled)
    also_at = {offset: set(values) for offset, values in partition.disagreeing.items()}
    for value, sent in _committed_with_offsets(seen, partition) if partition.mode.acks == ACKS_ALL else ():
        assert sent.offset is not None
        _place(value_at, also_at, sent.offset, value)
    return value_at, also_at


def _place(value_at: dict[int, int], also_at: dict[int, set[int]], offset: int, value: int) -> None:
    if value_at.setdefault(offset, value) != value:
        also_at.setdefault(offset, set()).add(value)


def _order(
    seen: Observations,
    partition: PartitionObservations,
    value_at: dict[int, int],
    also_at: dict[int, set[int]],
) -> VersionOrder:
    offsets = sorted(value_at)
    order = VersionOrder(offsets, [], {}, {}, {})
    for index, offset in enumerate(offsets):
        value = value_at[offset]
        order.index[offset] = index
        if offset in also_at:
            for other in also_at[offset]:
                order.first.setdefault(other, index)
                order.last[other] = index
            order.values.append(min(value, *also_at[offset]))
        else:
            order.values.append(value)
        order.first.setdefault(value, index)
        order.last[value] = index
    if partition.mode.compacted:
        order.superseded = _superseded(seen, partition, order)
    return order


def _superseded(seen: Observations, partition: PartitionObservations, order: VersionOrder) -> set[int]:
    """Where the offset of a value is not known, any other with its key may be the later one."""
    latest: dict[int, int] = {}  # record key -> index of its last value
    for value, index in order.last.items():
        sent = seen.sender(partition.key, value)
        if sent is not None and sent.record_key is not None:
            latest[sent.record_key] = max(index, latest.get(sent.record_key, index))
    return {
        value
        for value in partition.sent
        if (record_key := seen.senders[value].record_key) is not None
        and order.last.get(value, -1) < latest.get(record_key, -1)
    }


def _committed_with_offsets(seen: Observations, partition: PartitionObservations) -> list[tuple[int, Sent]]:
    """Committed sends of a partition whose ack has an offset."""
    return [(value, sent) for value, sent in _with_offsets(seen, partition) if seen.committed(sent)]


def _with_offsets(seen: Observations, partition: PartitionObservations) -> list[tuple[int, Sent]]:
    """Every send whose ack has an offset. What is aborted later has its place in the log, too."""
    sends = ((value, seen.senders[value]) for value in partition.sent)
    return [(value, sent) for value, sent in sends if sent.offset is not None]


def check_offsets(
    seen: Observations, orders: VersionOrders, uncommitted: VersionOrders, findings: Findings
) -> None:
    for key, partition in seen.partitions.items():
        _inconsistent_offsets(seen, partition, findings)
        if partition.mode.acks != 0:  # at acks=0 there are no offsets
            _mismatches(seen, partition, findings)
        _duplicates(seen, partition, uncommitted.get(key, orders[key]), findings)


def _inconsistent_offsets(seen: Observations, partition: PartitionObservations, findings: Findings) -> None:
    """Whoever reads uncommitted finds the same, and more."""
    disagreeing = set(partition.disagreeing)
    uncommitted = seen.uncommitted.get(partition.key)
    if uncommitted is not None:
        committed = partition.polled
        disagreeing.update(uncommitted.disagreeing)
        disagreeing.update(
            offset for offset, value in uncommitted.polled.items() if committed.get(offset, value) != value
        )
    for offset in sorted(disagreeing):
        sightings = seen.sightings(partition.key, offset)
        witnesses = " and ".join(f"value {value} (op {s.op})" for value, s in sorted(sightings.items()))
        findings.add(
            INCONSISTENT_OFFSETS,
            partition.key,
            f"polls found {witnesses} at offset {offset} of {partition.key}",
            [sighting.op for sighting in sightings.values()],
            offset=offset,
            values=sorted(sightings),
        )


def _mismatches(seen: Observations, partition: PartitionObservations, findings: Findings) -> None:
    acknowledged = _with_offsets(seen, partition)
    acknowledged_at: dict[int | None, list[int]] = {}
    for value, sent in acknowledged:
        acknowledged_at.setdefault(sent.offset, []).append(value)
    for value, sent in acknowledged:
        assert sent.offset is not None
        sightings = seen.sightings(partition.key, sent.offset)
        others = {other: sighting.op for other, sighting in sightings.items() if other != value}
        how = "polled"
        if not others:
            # One other is enough as evidence, and keeps this linear.
            rivals = acknowledged_at[sent.offset][:2]
            others = {other: seen.senders[other].op for other in rivals if other != value}
            how = "acknowledged"
        if not others:
            continue
        other, witness = min(others.items())
        findings.add(
            SEND_POLL_MISMATCH,
            partition.key,
            f"value {value} was acknowledged at offset {sent.offset} of {partition.key} (op {sent.op}), "
            f"where value {other} was {how} (op {witness})",
            [sent.op, witness],
            offset=sent.offset,
            value=value,
            other=other,
        )


def _duplicates(
    seen: Observations, partition: PartitionObservations, order: VersionOrder, findings: Findings
) -> None:
    repeated = {value for value, index in order.first.items() if order.last[value] != index}
    if not repeated:
        return
    # -> offset -> the operations that observed it there.
    places: dict[int, dict[int, int]] = {value: {} for value in repeated}
    if partition.mode.acks == ACKS_ALL:
        for value, sent in _with_offsets(seen, partition):
            if value in repeated and sent.offset is not None:
                places[value][sent.offset] = sent.op
    for offset in order.offsets:
        for value, sighting in seen.sightings(partition.key, offset).items():
            if value in repeated:
                places[value][offset] = sighting.op
    for value in sorted(repeated):
        writer = seen.sender(partition.key, value)
        offsets = ", ".join(f"{offset} (op {op})" for offset, op in sorted(places[value].items()))
        findings.add(
            DUPLICATE,
            partition.key,
            f"value {value}, sent once{'' if writer is None else f' (op {writer.op})'}, "
            f"is at offsets {offsets} of {partition.key}",
            [*places[value].values(), *(() if writer is None else (writer.op,))],
            value=value,
            offsets=sorted(places[value]),
        )
