"""What the compatibility tests share: one cluster per worker, topics of one's own, three ways to ask; and
kafka-python, with what it leaves behind."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from tests.support.clients.wire_client import Wire
from tests.support.kafka.kafka_tools import KafkaTools

MakeTopic = Callable[..., str]
Closed = Callable[[Any], Any]


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


@pytest.fixture(scope="session")
def kafka() -> ModuleType:
    """kafka-python; its way of reading its own files is out of date."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka
        import kafka.admin
    return kafka


@pytest.fixture
def litter() -> Iterator[None]:
    """kafka-python and aiokafka leave sockets of their own (not connections to us) to the garbage
    collector."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def closed(litter: None) -> Iterator[Closed]:
    """Of a client that is closed when the test ends, however it ends: one that lives on looks for nodes that
    have ended for as long as this process lives, and each socket that is refused is left to the collector."""
    with contextlib.ExitStack() as stack:
        yield lambda client: stack.enter_context(contextlib.closing(client))
