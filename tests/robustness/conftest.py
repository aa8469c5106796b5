"""Nodes for the tests of trouble."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.robustness.nodes import NodeFiles

MakeNode = Callable[..., NodeFiles]


@pytest.fixture
def make_node(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> MakeNode:
    """`make_node(log_dirs="...", broker_rack=None)`: its properties are written, nothing is formatted."""
    return lambda **changes: NodeFiles(tmp_path, free_ports(2), **changes)


@pytest.fixture(scope="module")
def lived(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Callable[[], NodeFiles]:
    """A node that ran once and ended cleanly; every call gives its files as they were then."""
    home = tmp_path_factory.mktemp("lived")
    node = NodeFiles(home, free_ports(2))
    node.format()
    node.run_and_stop()
    shutil.copytree(node.data, home / "kept")

    def restore() -> NodeFiles:
        if node.data.is_dir():
            shutil.rmtree(node.data)
        node.data.unlink(missing_ok=True)
        shutil.copytree(home / "kept", node.data)
        return node

    return restore
