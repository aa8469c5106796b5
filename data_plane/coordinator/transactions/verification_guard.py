"""Whether a verified transaction is still open when its batch is appended.

    api/produce_queue, api/group_offsets -> begin
    broker/txn_verification              -> renew, before it queries the coordinator
    marker_writer                        -> marker_written: what was verified before is over
    api/produce_queue, api/group_offsets -> append, if the guard holds -> end

They share one `VerificationGuards` per broker.
"""

from __future__ import annotations

from metadata_quorum.foundation.model import TopicPartition


class VerificationGuard:
    """Holds from the time a leader verifies a transaction with the coordinator until the batch that it is
    for is appended, unless a marker is written in between: then the verified transaction is over."""

    __slots__ = ("holds",)

    def __init__(self) -> None:
        self.holds = True


class VerificationGuards:
    """By partition and producer id."""

    def __init__(self) -> None:
        self._open: dict[tuple[TopicPartition, int], list[VerificationGuard]] = {}

    def begin(self, tp: TopicPartition, producer_id: int) -> VerificationGuard:
        guard = VerificationGuard()
        self._open.setdefault((tp, producer_id), []).append(guard)
        return guard

    def renew(self, tp: TopicPartition, producer_id: int, guard: VerificationGuard) -> None:
        """The coordinator is queried again: markers from before do not count."""
        guard.holds = True
        guards = self._open.setdefault((tp, producer_id), [])
        if guard not in guards:
            guards.append(guard)

    def end(self, tp: TopicPartition, producer_id: int, guard: VerificationGuard) -> None:
        """The batch is appended, or will not be."""
        guards = self._open.get((tp, producer_id), [])
        if guard in guards:
            guards.remove(guard)
            if not guards:
                del self._open[tp, producer_id]

    def marker_written(self, tp: TopicPartition, producer_id: int) -> None:
        for guard in self._open.pop((tp, producer_id), ()):
            guard.holds = False
