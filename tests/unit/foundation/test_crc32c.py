"""The checksum's function is its library's own, and comes alone."""

from __future__ import annotations

import subprocess
import sys


def test_it_is_the_librarys_and_nothing_else_is_imported_for_it() -> None:
    program = """
import sys
from metadata_quorum.foundation.crc32c import crc32c
print(*({"crc32c", "importlib.metadata", "argparse", "email"} & set(sys.modules)))
import crc32c as library
assert library.crc32c is crc32c
assert crc32c(b"123456789") == 0xE3069283
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.split() == []
