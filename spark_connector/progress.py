"""How far a streaming query is behind its topics, from the progress that Spark reports.

    offsets_behind_latest(query.lastProgress.sources[0])

Spark's own Kafka source puts these figures among a source's `metrics`. Python cannot put anything there,
but the progress has what they are computed from: the micro-batch's end, and the ends of the logs.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import SourceProgress

from spark_connector.offsets import Offsets, from_spark


def offsets_behind_latest(source: SourceProgress) -> dict[str, float]:
    """`minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`; empty where Spark has
    no latest offset."""
    end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
    behind = [offset - end.get(partition, 0) for partition, offset in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offsets(offset: Any) -> Offsets:
    """An offset as PySpark returns it: JSON, its parsed value, or None."""
    document = json.loads(offset) if isinstance(offset, str) else offset
    return from_spark(document) if document else {}
