"""format("coterie"): Kafka's topics as a source and a sink of Spark, and a query that is a member of its group.

It imports client and settings, not the broker. Read `checkpoint.py` first (what is promised, and how), then `source.py`
(what Spark calls) and `queries.py` (how batches are planned). `options.py`, `offsets.py`, `batch_plan.py`,
`checkpoint.py`, `log_ends.py`, `membership.py`, `progress.py` and `queries.py` import no Spark. Spark finds the source
by the module `pyspark_coterie` beside this package. The tables of the groups are made by `pipeline/`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.spark.offset_committer import OffsetCommitter
    from coterie.spark.progress import kafka_progress
    from coterie.spark.progress_listener import ProgressListener
    from coterie.spark.transactional_sink import TransactionalSink

__all__ = ["OffsetCommitter", "ProgressListener", "TransactionalSink", "kafka_progress"]
_HOMES = {
    "OffsetCommitter": "offset_committer",
    "ProgressListener": "progress_listener",
    "TransactionalSink": "transactional_sink",
    "kafka_progress": "progress",
}


def __getattr__(name: str) -> Any:
    """Import Spark only if the name is asked for."""
    if name in _HOMES:
        return getattr(import_module(f"coterie.spark.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'coterie.spark' has no attribute {name!r}")
