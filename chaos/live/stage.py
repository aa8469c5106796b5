"""The lab's cluster as a stage (chaos/play.py): faults act on real processes, disks and links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos import faults
from chaos.events import LINKS_RENEWED, EventLog
from chaos.faults import Fault, FaultContext
from kraft.cli.errors import CliError


class LiveStage:
    def __init__(self, context: FaultContext, events: EventLog) -> None:
        self._context = context
        self._events = events

    @property
    def nodes(self) -> Sequence[int]:
        return self._context.cluster.nodes

    @property
    def clients(self) -> int:
        return self._context.cluster.wiring.clients

    def is_down(self, node: int) -> bool:
        return self._context.is_down(node)

    def begin(self, fault: Fault) -> str | None:
        """Raises FaultSkipped."""
        try:
            return fault.begin(self._context)
        except CliError as error:
            self._renew_links(error)
            return None

    def end(self, fault: Fault) -> None:
        try:
            fault.end(self._context)
        except CliError as error:
            self._renew_links(error)

    def heal(self) -> None:
        faults.wake_all(self._context)
        try:
            faults.heal_links(self._context)
        except CliError as error:
            self._renew_links(error)
        faults.heal_nodes(self._context)

    def fallen(self) -> Iterator[str]:
        for who, code in self._context.cluster.local.reap():
            yield f"{who}, {_how(code)}"

    def _renew_links(self, error: CliError) -> None:
        """Toxiproxy hangs: it waits for the far end of a connection that may never read again. All
        connections break then; what is wrong with links stays."""
        self._events.point(LINKS_RENEWED, str(error))
        self._context.cluster.renew_links()
        for fault in self._context.links:
            self._context.cluster.links.apply(fault)


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with code {code}"
