"""Cycles of dependencies between operations.

A write-read edge leads from the operation that sent a value to each that polled it; a time edge from an
operation to all that began after it had ended, and to the next of its process. A cycle of these is G1c.
Write-write edges, between neighbours in a version order, are checked separately: their cycles (G0) are
tolerated, because Kafka lets writers interleave, transactions too. We add no write-write edges to G1c and
draw no read-write edges at all, so G-single and G2 are not claimed.

Time edges would be quadratic. They lead through *moments* instead, nodes of their own in a chain: operations
that ended since the last moment lead into it, and it leads to those that begin next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chaos.checker.anomalies import G0, G1C
from chaos.checker.graph import cyclic_components, shortest_cycle
from chaos.checker.observations import Observations, polls_of
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrders
from chaos.history import Operation

LISTED = 12  # operations of a cycle's component that a detail lists


def check_cycles(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    _write_cycles(seen, orders, findings)
    _read_cycles(seen, findings)


@dataclass(slots=True)
class Graph:
    successors: dict[int, list[int]] = field(default_factory=dict)

    def add(self, before: int, after: int) -> None:
        following = self.successors.get(before)
        if following is None:
            self.successors[before] = [after]
        elif following[-1] != after:
            following.append(after)


# Write-write ------------------------------------------------------------------------------------------------


def _write_cycles(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    graph = Graph()
    keys: dict[tuple[int, int], str] = {}  # edge -> a partition that it is derived from
    for key, order in orders.items():
        previous = None
        for value in order.values:
            sent = seen.sender(key, value)
            if sent is not None:
                if previous is not None and previous != sent.op:
                    graph.add(previous, sent.op)
                    keys[previous, sent.op] = key
                previous = sent.op
    for component in cyclic_components(graph.successors):
        cycle = shortest_cycle(graph.successors, component[0], set(component))
        steps = list(zip(cycle, cycle[1:] + cycle[:1], strict=True))
        findings.add(
            G0,
            sorted({keys[step] for step in steps}),
            "; ".join(f"op {a} wrote to {keys[a, b]} right before op {b}" for a, b in steps),
            cycle,
            operations=component[:LISTED],
            size=len(component),
        )


# Write-read and time ----------------------------------------------------------------------------------------


def _read_cycles(seen: Observations, findings: Findings) -> None:
    operations = seen.operations
    if _surely_acyclic(seen):
        return
    graph = Graph()
    for writer, reader in _write_read_edges(seen):
        graph.add(writer, reader)
    _add_process_edges(operations, graph)
    _add_time_edges(operations, graph)
    for component in cyclic_components(graph.successors):
        members = [node for node in component if node < len(operations)]
        cycle = shortest_cycle(graph.successors, members[0], set(component))
        cycle = [node for node in cycle if node < len(operations)]
        steps = [_explained(seen, a, b) for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
        findings.add(
            G1C,
            sorted({key for key, _ in steps if key is not None}),
            "; ".join(sentence for _, sentence in steps),
            cycle,
            operations=members[:LISTED],
            size=len(members),
        )


def _surely_acyclic(seen: Observations) -> bool:
    """Nearly always no graph is needed. Give each operation one moment of its time: the start where it only
    sends, else the end. Time edges then lead forward, or at least not back; if every write-read edge leads
    forward, there is no cycle."""
    operations = seen.operations
    latest: dict[int, int] = {}  # process -> end of its last operation
    for operation in operations:
        if operation.start < latest.get(operation.process, operation.start):
            return False
        latest[operation.process] = operation.end
    moment = [o.end if polls_of(o) else o.start for o in operations]
    return all(moment[writer] < moment[reader] for writer, reader in _write_read_edges(seen))


def _write_read_edges(seen: Observations) -> Iterator[tuple[int, int]]:
    for index, operation in enumerate(seen.operations):
        if operation.uncommitted:
            continue  # it depends on nothing that may still be undone
        last_writer = index
        for poll in polls_of(operation):
            for key, pairs in poll.messages.items():
                for _, value in pairs:
                    sent = seen.sender(key, value)
                    if sent is not None and sent.op not in (index, last_writer):
                        last_writer = sent.op
                        yield sent.op, index


def _add_process_edges(operations: Sequence[Operation], graph: Graph) -> None:
    latest: dict[int, int] = {}  # process -> its last operation
    for index, operation in enumerate(operations):
        before = latest.get(operation.process)
        if before is not None:
            graph.add(before, index)
        latest[operation.process] = index


def _add_time_edges(operations: Sequence[Operation], graph: Graph) -> None:
    """An operation of unknown outcome may take effect at any later time: nothing is after it."""
    ended = sorted((o.end, index) for index, o in enumerate(operations) if o.outcome != "info")
    begun = sorted((o.start, index) for index, o in enumerate(operations))
    moment = len(operations)  # before anything has ended
    ends = 0  # how many of them are in the graph
    for start, index in begun:
        if ends < len(ended) and ended[ends][0] < start:
            graph.add(moment, moment + 1)
            moment += 1
            while ends < len(ended) and ended[ends][0] < start:
                graph.add(ended[ends][1], moment)
                ends += 1
        graph.add(moment, index)


def _explained(seen: Observations, before: int, after: int) -> tuple[str | None, str]:
    """Why one operation comes before another: the key and the sentence of a write-read edge, or the clock."""
    for poll in polls_of(seen.operations[after]):
        for key, pairs in poll.messages.items():
            for _, value in pairs:
                sent = seen.sender(key, value)
                if sent is not None and sent.op == before:
                    return key, f"op {before} sent value {value} to {key}, which op {after} polled"
    process = seen.operations[before].process
    if process == seen.operations[after].process:
        return None, f"op {after} came next in process {process}"
    return None, f"op {before} had ended when op {after} began"
