"""Mixed clusters are tested with one Apache Kafka, and a scenario of each kind with the newest, too."""

from __future__ import annotations

import pytest

from tests.support.kafka.versions import CHOSEN, KAFKA_VERSION, NEWEST_KAFKA


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kafka_version" in metafunc.fixturenames:
        too = [NEWEST_KAFKA] if metafunc.definition.get_closest_marker("newest_kafka") and not CHOSEN else []
        # Of the session: first all that run the one, then the others, so that clusters are kept meanwhile.
        metafunc.parametrize("kafka_version", [KAFKA_VERSION, *too], indirect=True, scope="session")
