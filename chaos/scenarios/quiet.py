"""`workload`: nothing is broken. The clients and the checker alone, which any Kafka cluster can be put to."""

from __future__ import annotations

from typing import Final

from chaos.scenarios.scenario import Scenario
from chaos.workload import TopicSpec

WORKLOAD: Final = Scenario(
    name="workload",
    story="Nothing is broken: the clients in every mode, and the checker.",
    schedule=lambda _rng, _seconds: (),
    seconds=20.0,
    topics=(
        TopicSpec("idempotent", idempotent=True),
        TopicSpec("all"),
        TopicSpec("one", acks=1),
        TopicSpec("zero", acks=0),
    ),
)
