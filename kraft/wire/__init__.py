"""Bytes of Kafka's protocol: its schemas are kio's, its readers and writers ours.

kio registers its types with hypothesis wherever that is installed, which costs a quarter of a second
and 9 MB at the start of every node that lives beside a test suite; so hypothesis is hidden from it.
"""

import sys

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.serial as _kio  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
