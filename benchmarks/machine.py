"""What the figures were measured on."""

from __future__ import annotations

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
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return found.group(1)
    return platform.processor() or platform.machine()


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    return told.splitlines()[0] if told else "unknown"
