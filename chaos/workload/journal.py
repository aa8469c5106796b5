"""A client's part of the history: under which process number it acts, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from chaos.history import Function, HistoryTransaction, MicroOperation, Operation, Outcome

Now = Callable[[], int]
Record = Callable[[Operation], None]


class Journal:
    """One thread's. Numbers of the same client are `clients` apart, so that no two clients share one."""

    def __init__(self, number: int, clients: int, now_ns: Now, record: Record) -> None:
        self.process = number
        self.now_ns = now_ns
        self._stride = clients
        self._record = record

    def retire(self) -> int:
        """What this number did last may still take effect: go on under the next one. The old one."""
        retired = self.process
        self.process += self._stride
        return retired

    def note(
        self,
        f: Function,
        start: int,
        outcome: Outcome,
        ops: Sequence[MicroOperation] = (),
        error: str | None = None,
        *,
        process: int | None = None,
        final: bool = False,
        keys: Sequence[str] = (),
        rebalanced: Sequence[str] = (),
        txn: HistoryTransaction | None = None,
        uncommitted: bool = False,
        ends: Mapping[str, Sequence[int]] | None = None,
        group: str | None = None,
        generation: int | None = None,
        committed: Mapping[str, int] | None = None,
        starts: Mapping[str, int] | None = None,
    ) -> None:
        """It ends now. `process`: where an older number did it."""
        number = self.process if process is None else process
        end = self.now_ns()
        self._record(
            Operation(
                number,
                f,
                start,
                end,
                outcome,
                ops,
                error,
                final,
                keys,
                rebalanced,
                txn,
                uncommitted,
                ends or {},
                group,
                generation,
                committed or {},
                starts or {},
            )
        )
