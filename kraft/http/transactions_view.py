"""Transactions that are not finished, and those that nobody will finish.

    coordinators: transactional id, state, partitions ─┐
    leaders: producer id, first offset                 ┴─> one row per transaction, with what is wrong

A coordinator writes the markers before it forgets a transaction. So one that is open on a partition, and that
no coordinator knows, hangs: the last stable offset stays, and readers of committed records wait for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraft.http.login import Visitor
from metadata_quorum.metadata.image import MetadataImage

SETTLED_MS: Final = 10_000
"""Views of brokers are of different moments; what is wrong for so long is wrong."""

Json = dict[str, Any]
Partition = tuple[str, int]


def transactions(
    views: Mapping[int, Json], image: MetadataImage, visitor: Visitor, now_ms: int
) -> list[Json]:
    """What has gone wrong comes first, then what is open the longest."""
    opened: dict[tuple[Partition, int], Json] = {}
    for view in views.values():
        for replica in view["replicas"]:
            partition = (replica["topic"], replica["partition"])
            for producer_id, epoch, first_offset, written_ms in replica.get("open_transactions", ()):
                opened[partition, producer_id] = {
                    "epoch": epoch, "first_offset": first_offset, "written_ms": written_ms
                }  # fmt: skip
    rows = []
    known: set[tuple[Partition, int]] = set()
    for broker_id, view in views.items():
        for each in view.get("transactions", ()):
            producer_id = each["producer_id"]
            partitions = [(topic, number) for topic, number in each["partitions"]]
            known.update((partition, producer_id) for partition in partitions)
            if visitor.may_see_transactional_id(each["transactional_id"]):
                rows.append(
                    {
                        "transactional_id": each["transactional_id"],
                        "producer_id": producer_id,
                        "producer_epoch": each["producer_epoch"],
                        "state": each["state"],
                        "coordinator": broker_id,
                        "open_ms": max(now_ms - each["started_ms"], 0),
                        "timeout_ms": each["timeout_ms"],
                        "partitions": [
                            _partition(partition, opened.get((partition, producer_id)))
                            for partition in partitions
                            if visitor.may_see_topic(partition[0])
                        ],
                        "problem": _problem(each, now_ms),
                    }
                )
    all_answer = _all_answer(views, image)
    for (partition, producer_id), described in opened.items():
        silent_ms = max(now_ms - described["written_ms"], 0)
        # Else it may have ended between two views.
        hangs = (partition, producer_id) not in known and all_answer and silent_ms >= SETTLED_MS
        if hangs and visitor.may_read_topic(partition[0]):
            rows.append(_without_coordinator(partition, producer_id, described, silent_ms))
    return sorted(rows, key=lambda row: (row["problem"] is None, -row["open_ms"]))


def _partition(partition: Partition, described: Json | None) -> Json:
    topic, number = partition
    return {
        "topic": topic,
        "partition": number,
        "first_offset": None if described is None else described["first_offset"],
    }


def _problem(transaction: Json, now_ms: int) -> str | None:
    open_ms = now_ms - transaction["started_ms"]
    if transaction["state"] == "Ongoing":
        late = open_ms > transaction["timeout_ms"] + 2 * SETTLED_MS
        return "is not aborted, though its timeout is over" if late else None
    return "its markers cannot be written" if open_ms > transaction["timeout_ms"] + SETTLED_MS else None


def _all_answer(views: Mapping[int, Json], image: MetadataImage) -> bool:
    """Whether all coordinators have answered."""
    return all(broker.fenced or broker_id in views for broker_id, broker in image.brokers.items())


def _without_coordinator(partition: Partition, producer_id: int, described: Json, silent_ms: int) -> Json:
    return {
        "transactional_id": None,
        "producer_id": producer_id,
        "producer_epoch": described["epoch"],
        "state": "unknown",
        "coordinator": None,
        "open_ms": silent_ms,
        "timeout_ms": None,
        "partitions": [_partition(partition, described)],
        "problem": "hangs: no coordinator knows it, and readers of committed records wait for it",
    }
