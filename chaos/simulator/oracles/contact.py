"""A ledger of who can talk to whom, and since when: what the oracle of liveness may ask for.

faults and processes, a few times a second -> each node: talks, silent or unclear -> each pair, the same

Unclear is what may go either way: a slow link or disk, a disk that has failed, a port that refuses, a node
that is about to stop. Of that nothing is asked. A slow node is no dead one.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from chaos.simulator.cluster import Cluster, host_of
from chaos.simulator.network import OneWay

BOTH_WAYS: Final = -1
"""In place of the causes of a pair, both of whose links are cut."""
QUICK_S: Final = 0.01
"""A fault that makes a link or a disk slower by no more than this changes nothing."""


class Contact(Enum):
    """Of a node with the world, or of two nodes with each other."""

    TALKS = auto()
    SILENT = auto()
    UNCLEAR = auto()


class Lasting(NamedTuple):
    """What has been so for some time."""

    contact: Contact
    since_s: float
    causes: tuple[int, ...]
    """The numbers of the processes, how many links are cut, and how often they were healed. With other causes
    it begins again: what was held back arrives when a link is healed, though its sender has died meanwhile,
    and though it is cut again before anybody has looked. As long as both ways are cut nothing does, whoever
    dies."""


class ContactLedger:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: dict[int, Lasting] = {}
        self._pairs: dict[tuple[int, int], Lasting] = {}
        controllers = cluster.shape.controllers
        self._links: dict[tuple[int, int], tuple[OneWay, OneWay]] = {
            (one, other): (
                cluster.network.link(host_of(one), host_of(other)),
                cluster.network.link(host_of(other), host_of(one)),
            )
            for one in controllers
            for other in cluster.shape.nodes
            if one != other
        }

    def look(self) -> None:
        """What is so now."""
        refusing = {host for (host, _), count in self._cluster.network.refused.items() if count}
        for node_id in self._cluster.shape.nodes:
            found = self._of_node(node_id)
            if found is Contact.TALKS and host_of(node_id) in refusing:
                found = Contact.UNCLEAR
            self._nodes[node_id] = self._lasting(self._nodes.get(node_id), found, self._process(node_id))
        for pair, links in self._links.items():
            found = self._of_pair(pair, links)
            causes = [self._process(node_id) for node_id in pair]
            if found is Contact.SILENT:
                cut = [link.cuts > 0 for link in links]
                causes = [BOTH_WAYS] if all(cut) else [*causes, sum(cut)]
                causes += [link.healed for link in links]
            self._pairs[pair] = self._lasting(self._pairs.get(pair), found, *causes)

    def _process(self, node_id: int) -> int:
        running = self._cluster.running.get(node_id)
        return 0 if running is None else running.loop.number

    def _lasting(self, before: Lasting | None, now: Contact, *causes: int) -> Lasting:
        if before is not None and before.contact is now and before.causes == causes:
            return before
        return Lasting(now, self._cluster.scheduler.now, causes)

    def _of_node(self, node_id: int) -> Contact:
        machine, running = self._cluster.machines[node_id], self._cluster.running.get(node_id)
        if running is None or running.loop.is_stopped:
            return Contact.SILENT
        if running.is_stopping or machine.disk.extra_s > QUICK_S or machine.disk.struck:
            return Contact.UNCLEAR
        return Contact.TALKS

    def _of_pair(self, pair: tuple[int, int], links: tuple[OneWay, OneWay]) -> Contact:
        ends = [self._nodes[node_id].contact for node_id in pair]
        if Contact.SILENT in ends or any(link.cuts for link in links):
            return Contact.SILENT
        if Contact.UNCLEAR in ends or any(link.extra_s > QUICK_S or link.rates for link in links):
            return Contact.UNCLEAR
        return Contact.TALKS

    def node(self, node_id: int) -> Lasting:
        """Whether it runs."""
        return self._nodes[node_id]

    def pair(self, controller: int, other: int) -> Lasting:
        """Whether these two reach each other. A node reaches itself, if it runs."""
        return self._nodes[other] if controller == other else self._pairs[controller, other]
