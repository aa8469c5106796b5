"""How far a streaming query is behind its topics, from the progress that Spark reports.

    offsets_behind_latest(query.lastProgress.sources[0])

Spark's own Kafka source puts these figures among a source's `metrics`. Python has no way to put anything
there, but what they are counted from is in the progress: the micro-batch's end, and where the logs ended.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import SourceProgress

from spark_connector.offsets import Offsets, from_spark


def offsets_behind_latest(source: SourceProgress) -> dict[str, float]:
    """`minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`; empty where Spark was
    told no latest offset."""
    end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
    behind = [offset - end.get(partition, 0) for partition, offset in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offsets(told: Any) -> Offsets:
    """An offset as PySpark hands it out: JSON, what it stands for, or nothing."""
    document = json.loads(told) if isinstance(told, str) else told
    return from_spark(document) if document else {}
