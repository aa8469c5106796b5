"""A node of a chaos cluster as a process: the product's, on a disk that can fail and a clock that can be set.

    python -m chaos.live.process server.properties [--with PID] [--plant NAME]

The first two as with kraft.node.process. The disk and the clock obey the switches of the directory in which
server.properties lies (chaos/live/control.py). `--plant` breaks the product on purpose, to see that the
checker finds it (chaos/live/planted.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.live.clock import ShiftedClock
from chaos.live.control import Conditions, obey
from chaos.live.disk_faults import FaultyDisk
from kraft.node.process import run_node
from metadata_quorum.foundation.disk import OsDisk

if TYPE_CHECKING:
    from kraft.config.node_config import Config


def main(arguments: Sequence[str]) -> int:
    """See the module; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m chaos.live.process")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--with", type=int, dest="owner", metavar="PID")
    parser.add_argument("--plant", metavar="NAME")
    options = parser.parse_args(arguments)
    home: Path = options.file.absolute().parent

    def run(config: Config) -> int:
        # Imported once the configuration is known to be good, as in kraft.node.process.
        from kraft.node.serve import run, wall_clock_ms

        if options.plant is not None:
            from chaos.live.planted import plant

            plant(options.plant)
        disk, clock = FaultyDisk(OsDisk()), ShiftedClock(wall_clock_ms)

        def meet(conditions: Conditions) -> None:
            disk.faults = conditions.faults
            clock.shift_ms = conditions.clock_shift_ms

        obey(home, meet)
        return run(config, disk, clock.now_ms)

    return run_node(str(options.file), owner=options.owner, run=run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
