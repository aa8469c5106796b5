"""Aborts the open transactions of a stopped query at once.

    spark.streams.addListener(AbortWhenStopped(options))    # in the driver's own Python

Spark starts a Python process to commit a micro-batch. If the query is stopped meanwhile, Spark calls neither
`commit` nor `abort` of its sink: the tasks' transactions stay open until the query is started again or
`kafka.transaction.timeout.ms` is over. Only a listener is notified.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_connector.connections import close_clusters
from spark_connector.micro_batches import abort_query
from spark_connector.options import sink_options


class AbortWhenStopped(StreamingQueryListener):
    """For all queries of a session that write with these options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Those of the sink; raises `OptionError`."""
        given = sink_options(options)
        self._client = given.client
        self._prefix = given.transactional_id_prefix
        self._runs: dict[UUID, UUID] = {}
        """Each query's latest run, which itself aborts what earlier ones left open."""
        self._aborting = Lock()
        """A query that is started again waits for it: its transactions have the same ids."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with self._aborting:
            self._runs[event.id] = event.runId

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._aborting:
            if self._runs.get(event.id, event.runId) != event.runId:
                return
            self._runs.pop(event.id, None)
            try:
                abort_query(self._client, self._prefix, str(event.id))
            finally:
                close_clusters()  # Spark calls us in a new thread for each event
