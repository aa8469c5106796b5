"""Watches how far groups have committed, from outside, through Kafka's protocol: lines of cluster.jsonl."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from chaos.observer import Coordinated, Observer
from kraft.peers.blocking_client import ask
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage
from metadata_quorum.foundation.errors import ErrorCode

OFFSET_FETCH_VERSIONS: Final = (5, 7)
EVERY_S: Final = 0.25
SILENCE_S: Final = 1.0
NONE_COMMITTED: Final = -1


class CommittedOffsets:
    def __init__(self, observer: Observer, groups: Sequence[str]) -> None:
        self._observer = observer
        self._groups = groups
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="committed", daemon=True)

    def __enter__(self) -> CommittedOffsets:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            for group in self._groups:
                self._ask(group)

    def _ask(self, group: str) -> None:
        """Nothing is recorded where its coordinator is not found, or does not answer."""
        node = self._observer.coordinator(Coordinated(group))
        if node is None:
            return
        address = self._observer.address(node)
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
                    self._observer.note_committed(
                        group, f"{topic.name}-{each.partition_index}", each.committed_offset
                    )
