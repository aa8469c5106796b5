"""What the compatibility tests share: one cluster per worker, topics of one's own, three ways to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from tests.support.clients.wire_client import Wire
from tests.support.kafka.kafka_tools import KafkaTools

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap(shared_cluster: LocalCluster) -> str:
    return shared_cluster.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture(scope="session")
def tools(kafka_jars: Path, bootstrap: str) -> KafkaTools:
    """Apache Kafka's shell tools on the shared cluster."""
    return KafkaTools(kafka_jars, bootstrap)


@pytest.fixture(scope="session")
def bare(kafka_jars: Path) -> KafkaTools:
    """Tools that name the cluster in their own way, or need none."""
    return KafkaTools(kafka_jars)


@pytest.fixture(scope="session")
def _topic_numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def make_topic(
    request: pytest.FixtureRequest, admin: AdminClient, _topic_numbers: Iterator[int]
) -> MakeTopic:
    """`make_topic(partitions=1, replicas=3, **{"key": "value"})`: a new topic; its name."""

    def make(partitions: int = 1, replicas: int = 3, **config: str) -> str:
        name = f"{request.node.originalname.removeprefix('test_')[:60]}-{next(_topic_numbers)}"
        admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result()
        return name

    return make


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as wire:
        yield wire
