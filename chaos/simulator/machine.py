"""A simulated machine: a host with a clock of its own and a disk, on which one process after the other runs.

    Machine.start -> ProcessLoop … kill: the page cache stays; lose_power: what was synced stays

Every operation of the disk takes time: beside the loop a job is parked for as long, on the loop an fsync
holds the whole process. A process that has died never returns from one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from chaos.sim.disk import Killed, SimDisk, SimFile
from chaos.simulator.draws import Draws
from chaos.simulator.jobs import current_job
from chaos.simulator.machine_clock import MachineClock
from chaos.simulator.network import Network
from chaos.simulator.process_loop import ProcessLoop
from chaos.simulator.scheduler import Scheduler
from metadata_quorum.foundation.blocking import MayBlock

SYNC_S: Final = (200e-6, 2e-3)
OTHER_S: Final = (2e-6, 60e-6)
"""How long an operation takes: at least, at most."""
LOG_WRITES: Final = frozenset({"append", "truncate"})
LOG: Final = ".log"
"""A segment's name ends so: a partition's, or the metadata's."""
SYNCS: Final = frozenset({"sync", "sync_dir"})
NAMES: Final = frozenset({"open", "create", "mkdir", "rename", "remove", "rmdir"})
"""Made under the lock of a log's directory (jobs.py)."""


class MachineDisk(SimDisk):
    """Its operations take time, and nothing is done for a process that is dead."""

    def __init__(self, machine: Machine, scheduler: Scheduler) -> None:
        super().__init__()
        self.extra_s = 0.0
        """Every operation takes so much longer: a gray disk."""
        self.cold = 0.0
        """The share of reads for which the page cache has nothing."""
        self.missed = 0
        """How many those were."""
        self.on_log_write: Callable[[str], None] = lambda path: None
        """Told of a segment that is about to be written, or truncated."""
        self._is_parking = True
        self._is_flushing = False
        self._machine = machine
        self._scheduler = scheduler
        self._random = machine.draws.stream(f"disk of {machine.host}")

    def strike(self, operation: str, path: str) -> None:
        """As the disk's; raises `Killed` also for a process that is dead."""
        process = self._scheduler.running
        if process is not None:
            if not process.alive:
                raise Killed(f"{operation} {path}")
            if process is self._machine.process:
                self._wait(self._machine.process, operation)
        try:
            super().strike(operation, path)
        except Killed:
            self._machine.kill(f"{operation} {path}")
            raise
        if operation in LOG_WRITES and path.endswith(LOG):
            self.on_log_write(path)

    def cached(self, path: str, start: int, end: int) -> bytes:
        """What the page cache has of a file; for who looks on from outside."""
        return bytes(self._inode(path).cache[start:end])

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """As the disk's; raises `Killed` for a process that is dead."""
        process = self._scheduler.running
        if process is not None and not process.alive:
            raise Killed(path)
        return super().open(path, create=create)

    def misses(self) -> bool:
        """Whether this read finds nothing in the page cache, which other processes need, too."""
        if self.cold and self._random.random() < self.cold:
            self.missed += 1
            return True
        return False

    def read_bytes(self, path: str, may_block: MayBlock) -> bytes:
        """As NAMES: no other job runs meanwhile."""
        self._is_parking = False
        try:
            return super().read_bytes(path, may_block)
        finally:
            self._is_parking = True

    def sync_below(self, path: str, may_block: MayBlock) -> None:
        """The device is waited for once."""
        self.sync_dir(path, may_block)
        self._is_flushing = True
        try:
            super().sync_below(path, may_block)
        finally:
            self._is_flushing = False

    def _wait(self, process: ProcessLoop, operation: str) -> None:
        if self._is_flushing or operation == "create":  # the `open` that creates has waited
            return
        usual = SYNC_S if operation in SYNCS else OTHER_S
        seconds = self._random.uniform(*usual) + self.extra_s
        job = current_job()
        if job is None:
            if operation in SYNCS or self.extra_s:
                process.hold_for(seconds)
        elif operation not in NAMES and self._is_parking:
            job.park(seconds)


class Machine:
    """See the module."""

    def __init__(
        self,
        host: str,
        scheduler: Scheduler,
        network: Network,
        draws: Draws,
        note: Callable[[str, str], None],
    ) -> None:
        """`note(host, what)` is called with what happens to it, for the story."""
        self.host = host
        self.draws = draws
        self.clock = MachineClock(scheduler)
        self.disk = MachineDisk(self, scheduler)
        self.boots = 1
        self.process: ProcessLoop | None = None
        self.on_death: Callable[[], None] = lambda: None
        self._scheduler = scheduler
        self._network = network
        self._note = note
        self._started = 0

    @property
    def boot_id(self) -> str:
        return f"{self.host}-boot-{self.boots}"

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self.process is not None

    def start(self, number: int) -> ProcessLoop:
        """A new process, which does nothing yet."""
        assert self.process is None
        self._network.dark.discard(self.host)
        self._started += 1
        name = f"{self.host}.{self._started}"
        self.process = ProcessLoop(  # type: ignore[abstract]
            name,
            number,
            self.host,
            self.clock,
            self.draws.stream(f"threads of {name}"),
            self._network,
            self._report,
        )
        return self.process

    def kill(self, why: str) -> None:
        """SIGKILL: nothing more is done, the page cache stays."""
        if self.process is not None:
            self._note(self.host, f"is killed ({why})" if why else "is killed")
            self._bury(silently=False)

    def lose_power(self) -> None:
        """No connection is reset; unsynced data is kept, lost or torn."""
        self._note(self.host, "loses power")
        self._network.dark.add(self.host)
        self._bury(silently=True)
        self.disk.power_loss(self.draws.stream(f"power of {self.host}"))
        self.boots += 1

    def _bury(self, *, silently: bool) -> None:
        process, self.process = self.process, None
        self.disk.kill()
        if process is not None:
            process.kill()
            self._network.forget(process, silently=silently)
            self.on_death()

    def _report(self, process: str, context: dict[str, Any]) -> None:
        """An error that its code raised and nothing handled."""
        error = context.get("exception")
        self._note(process, f"{context.get('message')}: {error!r}")
