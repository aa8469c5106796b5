"""pytest fixtures over kraft.testing: `kraft_cluster` for one test, `kraft_session_cluster` for all of them.

    @pytest.mark.kraft(nodes=1, settings={"auto.create.topics.enable": False})
    def test_orders(kraft_cluster): ...

Every pytest run in an environment that has kraft installed loads this module (entry point `pytest11`), so it
imports nothing until a fixture is used. Under pytest-xdist each worker has clusters of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kraft.testing import Cluster

    ClusterFactory = Callable[..., AbstractContextManager[Cluster]]

MARKER = (
    "kraft(nodes=3, settings={}, links=False, tls=False, sasl=False): what `kraft_cluster` is like, "
    "see kraft.testing.cluster"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def kraft_cluster_factory(tmp_path_factory: pytest.TempPathFactory) -> ClusterFactory:
    """`kraft.testing.cluster` with its directory under pytest's temporary ones, for fixtures of your own."""
    from kraft.testing import cluster

    def make(nodes: int = 3, **options: Any) -> AbstractContextManager[Cluster]:
        return cluster(nodes, directory=tmp_path_factory.mktemp("kraft"), **options)

    return make


@pytest.fixture
def kraft_cluster(request: pytest.FixtureRequest, kraft_cluster_factory: ClusterFactory) -> Iterator[Cluster]:
    """A test's own cluster, which it may break: three nodes, or as `@pytest.mark.kraft(...)` says."""
    marker = request.node.get_closest_marker("kraft")
    options = {} if marker is None else marker.kwargs
    with kraft_cluster_factory(**options) as running:
        yield running


@pytest.fixture(scope="session")
def kraft_session_cluster(kraft_cluster_factory: ClusterFactory) -> Iterator[Cluster]:
    """Three nodes for all tests of a run (of a worker) that leave them as they are."""
    with kraft_cluster_factory() as running:
        yield running
