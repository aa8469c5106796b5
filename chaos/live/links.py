"""The links of a cluster, and their faults.

    LinkFault -> Links.apply -> for every link that carries what `source` sends to `target`, one toxic

What a sends to b travels as the upstream half of the links that a opened, and as the downstream
half of those that b opened: a's requests and Raft frames, and a's answers to b. A cut of both
halves makes it one-way and complete. The toxics in the server are the only record of faults, so that
several processes may break and heal the same cluster.

Notes on Toxiproxy: a cut swallows bytes, so the connections that lost some are closed when it is
healed; new connections through a cut are accepted, and silent. Toxics of one link work in the
order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Final

from chaos.live.link_faults import KINDS, BadFault, End, LinkFault, end_of
from chaos.live.toxiproxy import runs_beside
from chaos.live.toxiproxy_api import Toxic, ToxiproxyApi
from chaos.live.wiring import Link, Wiring
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster

UPSTREAM: Final = "upstream"
DOWNSTREAM: Final = "downstream"


class Links:
    """Ends are nodes (2) and clients ("c0"); every fault acts on what the first end sends to the second."""

    def __init__(self, wiring: Wiring, api: ToxiproxyApi | None = None) -> None:
        self.wiring = wiring
        self._api = api or ToxiproxyApi(HOST, wiring.api_port)

    @classmethod
    def attach(cls, directory: Path) -> Links:
        """Of a running cluster, by its directory."""
        return cls(Wiring.load(directory))

    # -- faults as data -------------------------------------------------------------------------

    def apply(self, fault: LinkFault) -> None:
        """Let it be wrong from now on; one of the same kind and link is replaced."""
        for way in fault.one_way():
            for link, stream in self._carriers(way):
                if fault.toxic is None:
                    self._api.enable(link.name, False)
                else:
                    self._api.add(link.name, Toxic(_name(way), fault.toxic, stream, way.attributes))

    def remove(self, fault: LinkFault) -> None:
        """Only this one."""
        for way in fault.one_way():
            for link, _ in self._carriers(way):
                if fault.toxic is None:
                    self._api.enable(link.name, True)
                else:
                    self._api.remove(link.name, _name(way))

    def active(self) -> list[LinkFault]:
        """All current faults, one-way."""
        faults: set[LinkFault] = set()
        listening = self._api.listening()
        for link in self.wiring.links:
            if link.name not in listening:
                faults.add(LinkFault("down", link.source, link.target))
            faults.update(_fault(toxic) for toxic in self._api.toxics(link.name))
        return sorted(faults, key=str)

    def heal(self, source: End, target: End) -> None:
        """Remove all faults of what `source` sends to `target`."""
        ends = f"-{source}-{target}"
        for link, _ in self._carriers(LinkFault("cut", source, target)):
            self._clean(link, lambda toxic: toxic.name.endswith(ends))
        for link in self.wiring.between(source, target):
            self._api.enable(link.name, True)

    def heal_all(self) -> None:
        """Nothing is wrong any longer with any link."""
        listening = self._api.listening()
        for link in self.wiring.links:
            self._clean(link, lambda _: True)
            if link.name not in listening:
                self._api.enable(link.name, True)

    def close(self) -> None:
        """End the connection to the server; what is wrong stays."""
        self._api.close()

    # -- by name --------------------------------------------------------------------------------

    def cut(self, source: End, target: End) -> None:
        """Nothing that `source` sends arrives; connections stay open."""
        self.apply(LinkFault("cut", source, target))

    def cut_both(self, a: End, b: End) -> None:
        self.apply(LinkFault("cut", a, b, both=True))

    def isolate(self, node: int) -> None:
        """Cut a node off from all other nodes, both ways; clients still reach it."""
        self.partition([[node], [other for other in self.wiring.nodes if other != node]])

    def partition(self, groups: Sequence[Collection[End]]) -> None:
        """Cut every link between groups, in both directions. An end in no group keeps all links."""
        for here, there in combinations(groups, 2):
            for a, b in product(here, there):
                if isinstance(a, int) or isinstance(b, int):  # clients do not connect to each other
                    self.cut_both(a, b)

    def slow(self, source: End, target: End, latency_ms: int, jitter_ms: int = 0) -> None:
        self.apply(LinkFault("slow", source, target, (latency_ms, jitter_ms)))

    def bandwidth(self, source: End, target: End, kb_per_s: int) -> None:
        self.apply(LinkFault("bandwidth", source, target, (kb_per_s,)))

    def slow_close(self, source: End, target: End, ms: int) -> None:
        """The end of a connection comes that much later."""
        self.apply(LinkFault("slow-close", source, target, (ms,)))

    def timeout(self, source: End, target: End, ms: int) -> None:
        """Nothing arrives, and connections end after that."""
        self.apply(LinkFault("timeout", source, target, (ms,)))

    def slice(self, source: End, target: End, average: int, variation: int = 0, delay_us: int = 0) -> None:
        """In pieces of so many bytes."""
        self.apply(LinkFault("slice", source, target, (average, variation, delay_us)))

    def limit(self, source: End, target: End, size: int) -> None:
        """A connection ends after so many bytes."""
        self.apply(LinkFault("limit", source, target, (size,)))

    def reset(self, source: End, target: End, ms: int = 0) -> None:
        """A connection is reset that long after its first bytes."""
        self.apply(LinkFault("reset", source, target, (ms,)))

    def down(self, source: End, target: End) -> None:
        """The connections that `source` opened end, and new ones are refused."""
        self.apply(LinkFault("down", source, target))

    # -- links ----------------------------------------------------------------------------------

    def _carriers(self, way: LinkFault) -> list[tuple[Link, str]]:
        """The halves of links that a fault is about."""
        own = [(link, UPSTREAM) for link in self.wiring.between(way.source, way.target)]
        answers = [(link, DOWNSTREAM) for link in self.wiring.between(way.target, way.source)]
        if not own and not answers:
            raise BadFault(f"{way.source}>{way.target}: there is no such link")
        if way.toxic is not None:
            return own + answers
        if not own:
            raise BadFault(f"{way}: {way.source} opens no connection to {way.target}, only the other way")
        return own

    def _clean(self, link: Link, condition: Callable[[Toxic], bool]) -> None:
        # The last first: a toxic can only go when those behind it take what it holds.
        for toxic in reversed(self._api.toxics(link.name)):
            if condition(toxic):
                self._api.remove(link.name, toxic.name)


def has_links(cluster: LocalCluster) -> bool:
    """Whether its nodes reach each other by links, all that run."""
    return runs_beside(cluster) and not Wiring.load(cluster.directory).past_them


def _name(fault: LinkFault) -> str:
    """A toxic's; it contains the fault that it is part of."""
    return f"{fault.kind}-{fault.source}-{fault.target}"


def _fault(toxic: Toxic) -> LinkFault:
    kind, source, target = toxic.name.rsplit("-", 2)
    args = tuple(toxic.attributes[value.attribute] for value in KINDS[kind].values)
    return LinkFault(kind, end_of(source), end_of(target), args)
