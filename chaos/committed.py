"""Watches how far groups have committed, from outside, through Kafka's protocol: lines of cluster.jsonl."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from chaos.observer import Coordinated, Observer
from chaos.repeated import repeated
from kraft.peers.blocking_client import ask
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage
from metadata_quorum.foundation.errors import ErrorCode

OFFSET_FETCH_VERSIONS: Final = (5, 7)
EVERY_S: Final = 0.25
SILENCE_S: Final = 1.0
NONE_COMMITTED: Final = -1


@contextmanager
def committed_offsets(observer: Observer, groups: Sequence[str]) -> Iterator[None]:
    """`observer` notes them until it is left."""

    def look() -> None:
        for group in groups:
            _note(observer, group)

    with repeated(look, EVERY_S, "committed"):
        yield


def _note(observer: Observer, group: str) -> None:
    """Nothing is recorded where its coordinator is not found, or does not answer."""
    node = observer.coordinator(Coordinated(group))
    if node is None:
        return
    address = observer.address(node)
    fields = {"group_id": group, "topics": None}
    try:
        answer = ask(
            address.host, address.port, ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSIONS, fields, SILENCE_S
        )
    except (OSError, MalformedMessage):
        return
    if answer.error_code != ErrorCode.NONE:
        return
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.NONE and each.committed_offset != NONE_COMMITTED:
                observer.note_committed(group, f"{topic.name}-{each.partition_index}", each.committed_offset)
