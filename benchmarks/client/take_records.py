"""take_records.c, built when it is first needed: a consumer whose own code costs nothing.

It stands on the librdkafka of the installed confluent-kafka, so it is the same client as the consumer in
Python (throughput.py), but for the object that Python makes of each record.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka

from benchmarks.client.throughput import ConsumeJob
from benchmarks.cluster import SystemSkipped
from benchmarks.maven import cache

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")
START_S = 10.0


@dataclass(frozen=True)
class Taken:
    """What the program prints."""

    messages: int
    bytes: int
    seconds: float
    cpu_s: float


def build() -> Path:
    """The program; raises SystemSkipped where it cannot be built."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    beside = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    library = next(beside.glob("librdkafka*.so*"), None)
    if compiler is None or library is None:
        raise SystemSkipped("no C compiler" if library else "confluent-kafka has no librdkafka beside it")
    command = [compiler, "-O2", str(SOURCE), str(library), f"-Wl,-rpath,{library.parent}"]
    version = hashlib.sha256("\n".join((*command, SOURCE.read_text())).encode()).hexdigest()[:12]
    program = cache() / f"take-records-{version}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        half_done = program.with_suffix(".tmp")
        built = subprocess.run([*command, "-o", half_done], capture_output=True, text=True, check=False)
        if built.returncode:
            raise SystemSkipped(f"{SOURCE.name} does not compile: {built.stderr.strip()}")
        half_done.rename(program)
    return program


def take_records(program: Path, job: ConsumeJob) -> Taken:
    command = [
        str(program),
        job.bootstrap,
        job.topic,
        str(job.partitions),
        str(job.messages),
        str(job.timeout_s),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=job.timeout_s + START_S
    )
    messages, size, seconds, cpu_s = done.stdout.split()
    return Taken(int(messages), int(size), float(seconds), float(cpu_s))
