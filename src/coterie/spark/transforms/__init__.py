"""Tables from tables: functions DataFrame -> DataFrame, a file each. No session, no network, no clock.

They begin with the rows of `coterie.spark.source`. Read `folded.py` first (the records of each group, with what is
remembered of it); the tables of `coterie.spark.schemas` are made from that.
"""

from __future__ import annotations

from coterie.spark.transforms.folded import folded
from coterie.spark.transforms.health import health
from coterie.spark.transforms.lag import lag, waiting
from coterie.spark.transforms.tables import commits, generations, last_commits, owners, ownership, rebalances, skipped

__all__ = [
    "commits",
    "folded",
    "generations",
    "health",
    "lag",
    "last_commits",
    "owners",
    "ownership",
    "rebalances",
    "skipped",
    "waiting",
]
