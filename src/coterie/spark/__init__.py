"""Spark: Kafka's topics as a source and a sink, and a query that is a member of its group. format("coterie").

Knows client and settings, not the broker. `options.py`, `offset_limits.py`, `plan.py`, `planning.py`,
`commit_metadata.py` and `holdings.py` decide and import no Spark; read `commit_metadata.py` first (what is promised,
and how), then `source.py` (what Spark calls). Spark finds the source by itself, by the module `pyspark_coterie` beside
this package. The tables of the groups are `schemas.py`, `decoding/`, `history/`, `transforms/` and `pipelines/`, in
this order.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.spark.committer import OffsetCommitter

__all__ = ["OffsetCommitter"]


def __getattr__(name: str) -> Any:
    """Spark is imported by who asks for it."""
    if name == "OffsetCommitter":
        return import_module("coterie.spark.committer").OffsetCommitter
    raise AttributeError(f"module 'coterie.spark' has no attribute {name!r}")
