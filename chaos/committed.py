"""Watches how far groups have committed, from outside, with a stock client: lines of cluster.jsonl."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from chaos.workload.producer import CLIENT_SETTINGS, SILENT

EVERY_S: Final = 0.25
REQUEST_S: Final = 2.0

Note = Callable[[str, str, int], None]
"""Group, key, offset."""


class CommittedOffsets:
    def __init__(self, bootstrap: str, groups: Sequence[str], note: Note) -> None:
        self._admin = AdminClient({**CLIENT_SETTINGS, "bootstrap.servers": bootstrap}, logger=SILENT)
        self._groups = groups
        self._note = note
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
        """Silence where its coordinator is not to be found."""
        wanted = [ConsumerGroupTopicPartitions(group)]
        try:
            answer = self._admin.list_consumer_group_offsets(wanted, request_timeout=REQUEST_S)[
                group
            ].result()
        except KafkaException:
            return
        for each in answer.topic_partitions or ():
            if each.error is None and each.offset >= 0:
                self._note(group, f"{each.topic}-{each.partition}", each.offset)
