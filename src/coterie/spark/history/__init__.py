"""The life of one group, read from its records one after the other: generations, intervals of ownership, rebalances.

Knows records and facts, not Spark, Arrow or the network; what it remembers is JSON, so that the next batch can read on.
Read `group.py` first; `classic.py` and `consumer.py` (KIP-848) derive, `observed.py` folds the facts of our own broker.
"""

from __future__ import annotations

from coterie.spark.history.group import GroupHistory
from coterie.spark.history.group_rows import At, Told

__all__ = ["At", "GroupHistory", "Told"]
