"""Directed graphs as lists of successors: their strongly connected components, and a short cycle in one of
them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

Successors = Mapping[int, Sequence[int]]


def cyclic_components(successors: Successors) -> list[list[int]]:
    """Strongly connected components of two or more nodes, by Tarjan's algorithm. Its recursion is a list
    here: a history is far deeper than Python's stack. Linear in nodes and edges."""
    components: list[list[int]] = []
    number: dict[int, int] = {}  # node -> when it was reached
    lowest: dict[int, int] = {}  # node -> the earliest node of the stack that can be reached from it
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in successors:
        if root in number:
            continue
        path = [(root, iter(successors[root]))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while path:
            node, remaining = path[-1]
            for following in remaining:
                if following not in number:
                    number[following] = lowest[following] = len(number)
                    stack.append(following)
                    on_stack.add(following)
                    path.append((following, iter(successors.get(following, ()))))
                    break
                if following in on_stack and number[following] < lowest[node]:
                    lowest[node] = number[following]
            else:
                path.pop()
                if path and lowest[node] < lowest[path[-1][0]]:
                    lowest[path[-1][0]] = lowest[node]
                if lowest[node] == number[node]:
                    component = _popped(stack, node)
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        components.append(sorted(component))
    return components


def _popped(stack: list[int], node: int) -> list[int]:
    component: list[int] = []
    while not component or component[-1] != node:
        component.append(stack.pop())
    return component


def shortest_cycle(successors: Successors, start: int, within: Collection[int]) -> list[int]:
    """The shortest way from a node back to itself inside its component, by breadth-first search. Raises
    ValueError where there is none."""
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for following in successors.get(node, ()):
            if following == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(came_from[cycle[-1]])
                return cycle[::-1]
            if following in within and following not in came_from:
                came_from[following] = node
                queue.append(following)
    raise ValueError(f"node {start} is on no cycle")
