"""Stands in for the Spark query: prints the lines of its next file, a process of its own beside it, and
waits.

python -m tests.unit.examples.printed_lines JOB
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    lines = min(Path(json.loads(sys.argv[1])["directory"]).glob("run-*"))
    text = lines.read_text()
    lines.unlink()
    worker = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    sys.stdout.write(text)
    sys.stdout.flush()
    if "that is all" not in text:
        sys.stdin.read()
    worker.communicate()
