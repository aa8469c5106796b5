"""Which Apache Kafka tests run."""

from __future__ import annotations

import os
from typing import Final

KAFKA_VERSION: Final = os.environ.get("KRAFT_KAFKA_VERSION", "4.1.0")
"""The one that kraft is measured by."""
NEWEST_KAFKA: Final = "4.3.1"
"""Of those that Maven Central has whole. In mixed clusters it runs what is marked `newest_kafka`, too."""
CHOSEN: Final = bool({"KRAFT_KAFKA_VERSION", "KRAFT_KAFKA_JARS"} & os.environ.keys())
"""Then there is only that one."""
