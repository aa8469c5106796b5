"""Losses: what was committed and never read, what was acknowledged and is not in the final read, what was
read once and is gone."""

from __future__ import annotations

from bisect import bisect_left

from chaos.checker.anomalies import LOST_WRITE, UNSEEN, VANISHED_READ
from chaos.checker.observations import Observations, Partition, Sent
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrder, VersionOrders


def check_losses(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    for key, partition in seen.partitions.items():
        _lost_writes(seen, partition, orders[key], findings)
        if UNSEEN.name not in findings.not_judged:
            _unseen(seen, partition, findings)
        if VANISHED_READ.name not in findings.not_judged and key in seen.final_keys:
            _vanished_reads(partition, findings)


def _lost_writes(seen: Observations, partition: Partition, order: VersionOrder, findings: Findings) -> None:
    """A value may stand at several indexes. The bound takes the first one of each value that was read, a
    value is lost by its last one: so doubt never counts as loss."""
    if not partition.read:
        return
    furthest = max(partition.read, key=order.first.__getitem__)
    bound = order.first[furthest]
    for value in partition.sent:
        sent = seen.senders[value]
        last = order.last.get(value)
        if value in partition.read or last is None or last > bound or not seen.committed(sent):
            continue
        reader = partition.read[furthest]
        findings.add(
            LOST_WRITE,
            partition.key,
            f"{_claim(seen, value, sent)}; no successful poll returned it, though op {reader} read on to "
            f"value {furthest} at offset {order.offsets[bound]}",
            [sent.op, reader],
            value=value,
            offset=order.offsets[last],
        )


def _unseen(seen: Observations, partition: Partition, findings: Findings) -> None:
    final = sorted(partition.final_poll)
    for value in partition.sent:
        sent = seen.senders[value]
        if value in partition.read or not seen.acknowledged(sent):
            continue
        findings.add(
            UNSEEN,
            partition.key,
            f"{_claim(seen, value, sent)}; no successful poll returned it, and "
            f"{_neighbours(final, sent.offset)}",
            [sent.op, *_witnesses(partition, final, sent.offset)],
            value=value,
            offset=sent.offset,
        )


def _vanished_reads(partition: Partition, findings: Findings) -> None:
    final = sorted(partition.final_poll)
    for offset in sorted(partition.polled):
        for value, sighting in partition.values_at(offset).items():
            if sighting.final is not None:
                continue
            findings.add(
                VANISHED_READ,
                partition.key,
                f"value {value} was polled at offset {offset} of {partition.key} (op {sighting.op}) "
                f"and is not there any more: {_neighbours(final, offset)}",
                [sighting.op, *_witnesses(partition, final, offset)],
                value=value,
                offset=offset,
            )


def _claim(seen: Observations, value: int, sent: Sent) -> str:
    operation = seen.operations[sent.op]
    how = "acknowledged to" if seen.acknowledged(sent) else "committed for"
    where = sent.key if sent.offset is None else f"offset {sent.offset} of {sent.key}"
    return f"value {value} was {how} process {operation.process} at {where} (op {sent.op})"


def _neighbours(final: list[int], offset: int | None) -> str:
    """What the final read saw around an offset where something is missing."""
    if not final:
        return "the final read found nothing"
    if offset is None:
        return f"the final read saw offsets {final[0]} to {final[-1]}"
    place = bisect_left(final, offset)
    there = place < len(final) and final[place] == offset
    if there:
        return f"the final read saw another value at {offset}"
    if place == len(final):
        return f"the final read ended at {final[-1]}"
    if place == 0:
        return f"the final read began at {final[0]}"
    return f"the final read saw {final[place - 1]} and {final[place]}"


def _witnesses(partition: Partition, final: list[int], offset: int | None) -> list[int]:
    """The final polls on both sides of an offset."""
    if offset is None:
        return []
    place = bisect_left(final, offset)
    return [partition.final_poll[near] for near in final[max(0, place - 1) : place + 1]]
