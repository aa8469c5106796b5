"""The configuration in a process's environment, as Apache Kafka's container image reads it.

    KAFKA_NODE_ID=1            node.id=1
    KAFKA_SSL___TEST           ssl-test        (three underscores: a dash)
    KAFKA_A__B                 a_b             (two: one)
    CLUSTER_ID=...             formats what is not formatted

One underscore is a dot. Keys of our own are set in the same way: KAFKA_KRAFT_HTTP_PORT is kraft.http.port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"
CLUSTER_ID: Final = "CLUSTER_ID"
FOR_THE_JVM: Final = frozenset(
    {
        "KAFKA_VERSION", "KAFKA_HEAP_OPTS", "KAFKA_HEAP_OPT", "KAFKA_OPTS", "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT", "KAFKA_JMX_HOSTNAME", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    }
)  # fmt: skip
"""Variables of Kafka's image and scripts that are not configuration keys: there is no JVM here."""


def properties_of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Keys and values as server.properties would have them."""
    return {
        _key(name.removeprefix(PREFIX)): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name != PREFIX and name not in FOR_THE_JVM
    }


def _key(name: str) -> str:
    """The longest runs first, as dots that they have become."""
    return name.lower().replace("_", ".").replace("...", "-").replace("..", "_")
