"""`move all-0 to 4,1,2`: a partition is reassigned to other replicas, as an operator would do it.

Any node accepts it (AlterPartitionReassignments, which brokers forward to the controller). The cluster
carries it out by itself; other faults may come in between.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chaos.history import partition_of
from chaos.live.cluster import ChaosCluster
from chaos.live.link_faults import BadFault
from kraft.local.free_ports import HOST
from kraft.peers.blocking_client import ask
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage
from metadata_quorum.foundation.errors import ErrorCode

ALTER_VERSIONS: Final = (0, 1)
PATIENCE_S: Final = 10.0
"""A new controller may have to be elected first."""
SILENCE_S: Final = 3.0
RETRY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class ReassignmentRequest:
    key: str
    replicas: tuple[int, ...]

    @classmethod
    def parse(cls, text: str, nodes: Sequence[int]) -> ReassignmentRequest:
        """Raises BadFault."""
        match = re.fullmatch(r"(\S+-\d+) to (\d+(?:,\d+)*)", text)
        replicas = tuple(map(int, match[2].split(","))) if match is not None else ()
        if match is None or not set(replicas) <= set(nodes) or len(set(replicas)) < len(replicas):
            known = ", ".join(map(str, nodes))
            raise BadFault(f"move {text}: say `move TOPIC-N to NODE,NODE,…`; the nodes are {known}")
        return cls(match[1], replicas)

    def __str__(self) -> str:
        return f"move {self.key} to {','.join(map(str, self.replicas))}"

    def ask(self, cluster: ChaosCluster) -> str | None:
        """Retry until a node accepts it; returns why, where none does."""
        deadline = time.monotonic() + PATIENCE_S
        refusal: str | None = "nobody answers"
        while refusal is not None and time.monotonic() < deadline:
            for answer in self._answers(cluster):
                refusal = answer
                if refusal is None:
                    return None
            time.sleep(RETRY_S)
        return refusal

    def _answers(self, cluster: ChaosCluster) -> Iterator[str | None]:
        topic, number = partition_of(self.key)
        partition = {"partition_index": number, "replicas": self.replicas}
        fields: dict[str, Any] = {
            "timeout_ms": int(SILENCE_S * 1000),
            "topics": [{"name": topic, "partitions": [partition]}],
        }
        for node in cluster.nodes:
            port = cluster.local.node(node).client_port
            try:
                answer = ask(
                    HOST, port, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ALTER_VERSIONS, fields, SILENCE_S
                )
            except (OSError, MalformedMessage):
                continue
            codes = [answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)]
            code = next((ErrorCode(code) for code in codes if code != ErrorCode.NONE), None)
            yield None if code is None else code.name
