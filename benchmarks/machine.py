"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import confluent_kafka
import psutil

PACKAGES = ("confluent-kafka", "kio", "pysyncobj", "uvloop", "crc32c")


def machine() -> dict[str, str]:
    """Names and figures of the machine and of the versions, as lines to print."""
    facts = {
        "processor": _processor(),
        "cores": str(psutil.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "java": _java(),
    }
    for package in PACKAGES:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if model:
            return model.group(1)
    return platform.processor() or platform.machine()


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    return version.splitlines()[0] if version else "unknown"


def file_write_cpu_s_per_gb(directory: Path, size: int = 512 << 20) -> float:
    """What it costs this machine to write a GB of new bytes into files, in any process.

    Under a hypervisor that takes free memory back, most of it is the first touch of each page, and it may
    be ten times the bare copy: without this line the brokers' own share would not be visible.
    """
    chunk = os.urandom(1 << 20)
    path = directory / "floor"
    before = os.times()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(chunk)):
            file.write(chunk)
    after = os.times()
    path.unlink()
    return (after.user - before.user + after.system - before.system) / (size / 1e9)
