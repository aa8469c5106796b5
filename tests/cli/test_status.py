"""A node's state over HTTP, asked of real nodes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import partial
from typing import Any

import pytest

from kraft.local.local_cluster import LocalCluster
from tests.support.waiting import PATIENCE_S, wait_until


def _get(cluster: LocalCluster, node_id: int, path: str) -> Any:
    url = f"http://127.0.0.1:{cluster.nodes[node_id].http_port}{path}"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def test_every_node_reports_its_state_and_they_agree_on_the_leader(shared_cluster: LocalCluster) -> None:
    def states() -> list[Any]:
        return [_get(shared_cluster, node_id, "/status") for node_id in shared_cluster.nodes]

    def agree() -> bool:
        """While another controller is elected they do not."""
        found = [state["controller"] for state in states()]
        return len({each["leader"] for each in found}) == 1 == sum(each["active"] for each in found)

    assert {state["node_id"] for state in states()} == set(shared_cluster.nodes)
    assert {state["cluster_id"] for state in states()} == {shared_cluster.cluster_id}
    wait_until(agree, "they agree on the controller")
    wait_until(lambda: not any(state["broker"]["fenced"] for state in states()), "no broker is fenced")


def test_the_loop_of_every_node_is_watched(shared_cluster: LocalCluster) -> None:
    """By what fails every test whose requests stall it (support/suite/stalls.py)."""

    def watched(node_id: int) -> bool:
        return bool(_get(shared_cluster, node_id, "/status")["loop"]["longest_ms"] > 0)

    for node_id in shared_cluster.nodes:
        wait_until(partial(watched, node_id), f"the watch of node {node_id} has looked")


def test_another_path_is_answered_with_404(shared_cluster: LocalCluster) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        _get(shared_cluster, 1, "/nowhere")
    assert refused.value.code == 404
    refused.value.close()
