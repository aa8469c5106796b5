"""Strongly connected components against the definition, and deeper than Python's stack."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.checker.graph import cyclic_components, shortest_cycle

NODES = range(6)
EDGES = st.sets(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)))


def successors(edges: set[tuple[int, int]]) -> dict[int, list[int]]:
    return {a: [b for x, b in sorted(edges) if x == a] for a in NODES if any(x == a for x, _ in edges)}


@given(EDGES)
def test_components_are_the_nodes_that_lead_to_each_other(edges: set[tuple[int, int]]) -> None:
    leads = set(edges)
    for via in NODES:
        leads |= {(a, b) for a in NODES for b in NODES if (a, via) in leads and (via, b) in leads}
    expected = {
        tuple(b for b in NODES if b == a or {(a, b), (b, a)} <= leads)
        for a in NODES
        if any({(a, b), (b, a)} <= leads for b in NODES if b != a)
    }
    found = cyclic_components(successors(edges))
    assert sorted(map(tuple, found)) == sorted(expected)
    for component in found:
        cycle = shortest_cycle(successors(edges), component[0], component)
        assert cycle[0] == component[0]
        assert all(step in edges for step in zip(cycle, cycle[1:] + cycle[:1], strict=True))


def test_a_long_chain_needs_no_deep_stack() -> None:
    length = 100_000
    chain = {node: [node + 1] for node in range(length)}
    assert cyclic_components(chain) == []
    assert cyclic_components({**chain, length: [0]}) == [list(range(length + 1))]


def test_no_cycle_through_a_node_is_said() -> None:
    with pytest.raises(ValueError, match="node 0"):
        shortest_cycle({0: [1], 1: []}, 0, {0, 1})
