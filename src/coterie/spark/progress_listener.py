"""ProgressListener: the progress of each batch in the shape of Spark's own Kafka source, for a log or a function.

spark.streams.addListener(ProgressListener())
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from coterie.spark.progress import kafka_progress

__all__ = ["ProgressListener", "log_progress"]

log = logging.getLogger("coterie.spark")


def log_progress(query: str, batch: int, source: dict[str, Any]) -> None:
    """Log the progress of one source, at INFO: what it reads, how far it is behind, and what its member is doing."""
    metrics = source["metrics"]
    behind = metrics.get("maxOffsetsBehindLatest")
    said = [f"query {query}, batch {batch}", source["description"]]
    said.append("behind by an unknown number of records" if behind is None else f"at most {behind} records behind")
    if source["member"]:
        said.append(source["member"].rstrip("."))
        said.append(f"rebalances: {metrics.get('rebalance-total', 'unknown')}")
    log.info("%s", "; ".join(said))


class ProgressListener(StreamingQueryListener):
    """Calls a function with the progress of every source that is format("coterie"), after each batch."""

    def __init__(self, function: Callable[[str, int, dict[str, Any]], None] = log_progress) -> None:
        """Create the listener.

        Args:
            function: Called with the name of the query (its id if it has none), the number of the batch, and what
                `kafka_progress` returns for the source. Without one, the progress is logged to `coterie.spark`.
        """
        self._function = function

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: nothing is read yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Report what a batch has read."""
        progress = event.progress
        for source in kafka_progress(progress):
            self._function(progress.name or str(progress.id), progress.batchId, source)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: nothing was read."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing: there is no more progress."""
